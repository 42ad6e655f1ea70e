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
TAIL = 0.15  # of the runs, from which the tail is fitted
OVERLAP = 1.5  # clocks and alarms raise alarms in the same runs: so many times fewer runs than alarms


def thresholds(maxima: Floats, rate: float) -> Floats:
    """[alarms, clocks] from [runs, alarms, clocks]: all together raise an alarm in this share of clean runs."""
    alarms, clocks = maxima.shape[1:]
    each = OVERLAP * rate / (alarms * clocks)
    return np.array(
        [[_exceeded_by(maxima[:, alarm, clock], each) for clock in range(clocks)] for alarm in range(alarms)]
    )


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
