"""Scores over a client's participations, and what rings an alarm."""

from __future__ import annotations

import numpy as np

from fedvitals.diagnose.evidence.course import scores
from fedvitals.diagnose.evidence.suspicion import watched


def test_the_clocks() -> None:
    """Now, the lesser of the last two, the mean of the last five once there are three; each client for itself."""
    client = np.array([0, 1, 0, 0, 1, 0, 0, 0])
    attempt = np.array([0, 0, 1, 2, 1, 3, 4, 5])
    given = np.array([1.0, 9.0, 3.0, 2.0, 7.0, 4.0, 5.0, 6.0])[:, None]
    clocks = watched(given, client, attempt)[:, 0]
    mine = clocks[client == 0]
    assert mine[:, 0].tolist() == [1, 3, 2, 4, 5, 6]
    assert mine[:, 1].tolist() == [-np.inf, 1, 2, 2, 4, 5]
    assert mine[:, 2].tolist() == [-np.inf, -np.inf, 2, 2.5, 3, 4]
    assert clocks[client == 1][:, 1].tolist() == [-np.inf, 7]


def test_a_rise_is_held_against_all_that_came_before() -> None:
    """The last three, and the last five, over the mean of at least three before: who was always so has no rise."""
    given = np.array([0.0, 0.0, 3.0, 4.0, 4.0, 4.0, 4.0, 4.0])
    both = np.concatenate([given, np.full(8, 9.0)])[:, None]
    clocks = watched(both, np.repeat([0, 1], 8), np.tile(np.arange(8), 2))[:, 0, 3:]
    rises = clocks[:8]
    assert np.isneginf(rises[:5, 0]).all()
    assert np.isneginf(rises[:7, 1]).all()
    np.testing.assert_allclose(rises[5:, 0], [4 - 1, 4 - 7 / 4, 4 - 11 / 5])
    np.testing.assert_allclose(rises[7, 1], 4 - 1)
    np.testing.assert_allclose(clocks[8:][np.isfinite(clocks[8:])], 0, atol=1e-12)


def test_scores_are_those_of_the_median() -> None:
    """Robust scores a column: a wild value moves nobody else's, and missing ones stay missing."""
    values = np.array([[1.0, np.nan], [2.0, 1.0], [3.0, 2.0], [4.0, 3.0], [1000.0, np.nan]])
    found = scores(values)
    assert found[2, 0] == 0
    assert found[4, 0] == 50
    np.testing.assert_allclose(found[0, 0], -2 / 1.4826)
    assert np.isnan(found[:, 1]).all()  # three values are too few to compare with
