"""Scores over a client's participations, and what rings an alarm."""

from __future__ import annotations

import numpy as np

from fedvitals.diagnose.evidence.course import scores
from fedvitals.diagnose.evidence.suspicion import CLOCKS, shipped, watched


def test_the_clocks() -> None:
    """Now, and the lesser of the last two; each client for itself."""
    client = np.array([0, 1, 0, 0, 1, 0, 0, 0])
    attempt = np.array([0, 0, 1, 2, 1, 3, 4, 5])
    given = np.array([1.0, 9.0, 3.0, 2.0, 7.0, 4.0, 5.0, 6.0])[:, None]
    clocks = watched(given, client, attempt)[:, 0]
    mine = clocks[client == 0]
    assert mine[:, 0].tolist() == [1, 3, 2, 4, 5, 6]
    assert mine[:, 1].tolist() == [-np.inf, 1, 2, 2, 4, 5]
    assert clocks[client == 1][:, 1].tolist() == [-np.inf, 7]


def test_a_rise_is_held_against_all_that_came_before() -> None:
    """The last five, and the last eight, over the mean of at least three before: who was always so has no rise."""
    given = np.array([0.0, 0.0, 3.0, *[4.0] * 8])
    both = np.concatenate([given, np.full(11, 9.0)])[:, None]
    clocks = watched(both, np.repeat([0, 1], 11), np.tile(np.arange(11), 2))[:, 0, 2:]
    rises = clocks[:11]
    assert np.isneginf(rises[:7, 0]).all()
    assert np.isneginf(rises[:10, 1]).all()
    np.testing.assert_allclose(rises[7:10, 0], [4 - 1, 4 - 7 / 4, 4 - 11 / 5])
    np.testing.assert_allclose(rises[10, 1], 4 - 1)
    np.testing.assert_allclose(clocks[11:][np.isfinite(clocks[11:])], 0, atol=1e-12)


def test_scores_are_those_of_the_median() -> None:
    """Robust scores a column: a wild value moves nobody else's, and missing ones stay missing."""
    values = np.array([[1.0, np.nan], [2.0, 1.0], [3.0, 2.0], [4.0, 3.0], [1000.0, np.nan]])
    found = scores(values)
    assert found[2, 0] == 0
    assert found[4, 0] == 50
    np.testing.assert_allclose(found[0, 0], -2 / 1.4826)
    assert np.isnan(found[:, 1]).all()  # three values are too few to compare with


def test_the_shipped_scorer_has_a_threshold_a_pair_that_is_watched() -> None:
    """An alarm and a clock each; every alarm is watched by some clock, and whoever is accused would be suspected."""
    scorers = shipped()
    assert scorers.accuse.shape == scorers.suspect.shape == (len(scorers.alarms), len(CLOCKS))
    assert np.isfinite(scorers.accuse).any(axis=1).all()
    pairs = np.isfinite(scorers.accuse)
    assert (pairs == np.isfinite(scorers.suspect)).all()
    assert (scorers.accuse[pairs] > scorers.suspect[pairs]).all()
