"""Scores over a client's participations, and what rings an alarm."""

from __future__ import annotations

import numpy as np

from fedvitals.diagnose.evidence.course import CONTEXT, scores
from fedvitals.diagnose.evidence.forest import Thresholds
from fedvitals.diagnose.evidence.suspicion import (
    CLOCKS,
    by_client,
    heights,
    shipped,
    watched,
)


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


def test_means_wait_until_they_have_seen_enough() -> None:
    """Of the last three and the last five."""
    given = np.array([9.0, 0.0, 3.0, 3.0, 0.0, 6.0])[:, None]
    means = watched(given, np.zeros(6, int), np.arange(6))[:, 0, 2:4]
    assert means[:, 0].tolist() == [-np.inf, -np.inf, 4, 2, 2, 3]
    assert means[3:, 1].tolist() == [-np.inf, 3, 2.4]


def test_a_rise_is_held_against_all_that_came_before() -> None:
    """The last five over the mean of at least three before: who was always so has no rise."""
    given = np.array([0.0, 0.0, 3.0, *[4.0] * 8])
    both = np.concatenate([given, np.full(11, 9.0)])[:, None]
    rises = watched(both, np.repeat([0, 1], 11), np.tile(np.arange(11), 2))[:, 0, -1]
    assert np.isneginf(rises[:7]).all()
    np.testing.assert_allclose(rises[7:10], [4 - 1, 4 - 7 / 4, 4 - 11 / 5])
    np.testing.assert_allclose(rises[11:][np.isfinite(rises[11:])], 0, atol=1e-12)


def test_heights_are_of_the_thresholds_of_a_pair_and_of_the_run() -> None:
    """0 for a suspect and 1 for an accused; a context that makes sound runs stand higher is taken off; who does not
    watch never rings."""
    accuse, suspect = np.array([[4.0, np.inf]]), np.array([[2.0, np.inf]])
    easing = np.zeros(len(CONTEXT))
    easing[CONTEXT.index("cohort")] = 0.5
    thresholds = Thresholds(accuse, suspect, easing, np.array([1.0, 3.0]))
    clocks = np.array([[[4.0, 99.0]], [[8.0, 99.0]], [[8.0, 99.0]], [[-np.inf, 99.0]]])
    contexts = np.zeros((4, len(CONTEXT)))
    contexts[2, CONTEXT.index("cohort")] = 2.0
    contexts[:, CONTEXT.index("sickness")] = np.nan
    found = heights(clocks, contexts, thresholds)
    assert found[:, 0, 0].tolist() == [0.0, 1.0, 0.5, -np.inf]
    assert np.isneginf(found[:, 0, 1]).all()


def test_a_client_stands_as_high_as_it_ever_did() -> None:
    """Over its participations, alarms and clocks; one that no clock has seen stands nowhere."""
    standing = np.full((4, 1, 2), -np.inf)
    standing[:3, 0] = [[0.5, -1.0], [2.0, -np.inf], [-3.0, 0.7]]
    assert by_client(standing, np.array([7, 3, 7, 9])).tolist() == [2.0, 0.7, -np.inf]


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
    scorers, limits = shipped(), shipped().thresholds
    assert limits.accuse.shape == limits.suspect.shape == (len(scorers.alarms), len(CLOCKS))
    assert np.isfinite(limits.accuse).any(axis=1).all()
    pairs = np.isfinite(limits.accuse)
    assert (pairs == np.isfinite(limits.suspect)).all()
    assert (limits.accuse[pairs] > limits.suspect[pairs]).all()
    assert limits.levels[0] < limits.levels[1]
    assert limits.easing.shape == (len(CONTEXT),)
