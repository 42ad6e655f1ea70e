"""Scores of runs without a fault -> thresholds with a stated rate of false alarms.

What counts is the largest score over all clients and rounds of a run: so the many comparisons are inside. Its upper
tail is taken as exponential beyond the 85% quantile (Pickands 1975; the shape 0 of the generalised Pareto family),
which gives thresholds for rates below one in the number of runs.

First every alarm and clock has thresholds of its own, so that their heights can be compared. How high the highest of a
run stands without a fault depends on the run: on how many clients there are and how unlike each other. That is taken
off, and the two levels that all runs share are set on what is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedvitals.bench.scorer.kinds import ALARMS, WATCHED
from fedvitals.bench.scorer.lessons import Learnt
from fedvitals.diagnose.evidence.course import CONTEXT
from fedvitals.diagnose.evidence.forest import Thresholds
from fedvitals.diagnose.evidence.suspicion import CLOCKS, CONTEXT_COLUMNS, heights, on_one_scale

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
TAIL = 0.15  # of the runs, from which the tail is fitted
EASED_BY = ("cohort", "agreement", "classes", "repeats", "spread", "usual_rows")  # none of which a few bad clients move
HIGH = 0.9  # the share of sound runs that stand below what is taken off
SIMPLER = 0.002  # weight of the penalty on it


def calibrated(lessons: Sequence[Learnt], clocks: Sequence[Floats], *, accuse: float, suspect: float) -> Thresholds:
    """From the lessons without a fault, with these rates; clocks are of each lesson [rows, alarms, clocks]."""
    clean = [place for place, one in enumerate(lessons) if one.clean]
    maxima = largest([clocks[place] for place in clean])
    watched = np.array([[clock in WATCHED[alarm] for clock in CLOCKS] for alarm in ALARMS])
    upper, lower = (pair_thresholds(maxima, watched, rate) for rate in (accuse, suspect))
    plain = np.array([on_one_scale(clocks[place], upper, lower).max() for place in clean])
    medians = np.array([np.median(np.nan_to_num(_contexts(lessons[place])), axis=0) for place in clean])
    weights = easing(medians, plain)
    start = Thresholds(upper, lower, weights, np.array([0.0, 1.0]))
    left = np.array([highest_clock(lessons[place], clocks[place], start).max() for place in clean])
    levels = np.array([exceeded_by(left, rate) for rate in (suspect, accuse)])
    return replace(start, levels=levels)


def highest_clock(lesson: Learnt, clocks: Floats, thresholds: Thresholds) -> Floats:
    """[rows]: of the clock that stands highest."""
    found: Floats = heights(clocks, _contexts(lesson), thresholds).max(axis=(1, 2))
    return found


def _contexts(lesson: Learnt) -> Floats:
    return lesson.features[:, CONTEXT_COLUMNS].astype(np.float64)


def pair_thresholds(maxima: Floats, watched: Bools, rate: float) -> Floats:
    """[alarms, clocks] from [runs, alarms, clocks]: each pair that is `watched` rings in this share of the runs, the
    others never."""
    found = np.full(watched.shape, np.inf)
    for alarm, clock in np.argwhere(watched):
        found[alarm, clock] = exceeded_by(maxima[:, alarm, clock], rate)
    return found


def exceeded_by(values: Floats, rate: float) -> float:
    """What this share of the runs is above."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return float("inf")
    start = float(np.quantile(finite, 1 - TAIL))
    beyond = finite[finite > start] - start
    scale = float(beyond.mean()) if beyond.size else 0.0
    return start + scale * float(np.log(TAIL / rate))


def easing(contexts: Floats, highest: Floats) -> Floats:
    """[contexts]: by how much the highest of a sound run rises with each, from [runs, contexts] and what is highest in
    each run (Koenker and Bassett 1978: regression of a quantile)."""
    from sklearn.linear_model import QuantileRegressor

    places = [CONTEXT.index(name) for name in EASED_BY]
    given = contexts[:, places]
    width = np.maximum(given.std(axis=0), 1e-9)
    fitted = QuantileRegressor(quantile=HIGH, alpha=SIMPLER, solver="highs").fit(given / width, highest)
    found = np.zeros(len(CONTEXT))
    found[places] = fitted.coef_ / width
    return found


def largest(clocks: Sequence[Floats]) -> Floats:
    """[runs, alarms, clocks] from each run's [rows, alarms, clocks]."""
    return np.array([one.max(axis=0) for one in clocks])
