"""Scores of runs without a fault -> thresholds with a stated rate of false alarms.

What counts is the largest score over all clients and rounds of a run: so the many comparisons are inside. Its upper
tail is taken as exponential beyond the 85% quantile (Pickands 1975; the shape 0 of the generalised Pareto family),
which gives thresholds for rates below one in the number of runs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
TAIL = 0.15  # of the runs, from which the tail is fitted
HALVINGS = 30  # of the interval in which the rate of a single clock is looked for


def thresholds(maxima: Floats, watched: Bools, rate: float) -> Floats:
    """[alarms, clocks] from [runs, alarms, clocks]: all together they raise an alarm in at most this share of the runs.

    Each pair that is `watched` gets the same rate of its own, the highest that keeps to it: alarms come together, so
    that is more than the rate divided by their number. The others never ring.
    """
    low, high = rate / watched.sum() / 10, rate
    for _ in range(HALVINGS):
        middle = (low * high) ** 0.5
        if alarmed(maxima, _limits(maxima, watched, middle)) > rate:
            high = middle
        else:
            low = middle
    return _limits(maxima, watched, low)


def _limits(maxima: Floats, watched: Bools, each: float) -> Floats:
    found = np.full(watched.shape, np.inf)
    for alarm, clock in np.argwhere(watched):
        found[alarm, clock] = _exceeded_by(maxima[:, alarm, clock], each)
    return found


def _exceeded_by(values: Floats, rate: float) -> float:
    finite = values[np.isfinite(values)]
    if not finite.size:
        return float("inf")
    start = float(np.quantile(finite, 1 - TAIL))
    beyond = finite[finite > start] - start
    scale = float(beyond.mean()) if beyond.size else 0.0
    return start + scale * float(np.log(TAIL / rate))


def alarmed(maxima: Floats, limits: Floats) -> float:
    """The share of runs whose largest score is at or beyond any threshold."""
    return float((maxima >= limits).any(axis=(1, 2)).mean())


def largest(clocks: Sequence[Floats]) -> Floats:
    """[runs, alarms, clocks] from each run's [rows, alarms, clocks]."""
    return np.array([one.max(axis=0) for one in clocks])
