"""Numbers that a few bad clients cannot move: what rules take their thresholds from."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fedvitals.store.table import Floats

TO_SIGMA = 1.4826  # the MAD of a normal distribution, times this, is its standard deviation
Numbers = NDArray[np.floating]


def median(values: Numbers) -> float:
    """Of what is finite; NaN of nothing."""
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if finite.size else math.nan


def spread(values: Numbers, floor: float = 0.0) -> float:
    """The median distance from the median, as a standard deviation; at least `floor`."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return math.nan
    return max(TO_SIGMA * float(np.median(np.abs(finite - np.median(finite)))), floor)


def scores(values: Numbers, floor: float = 0.0) -> Floats:
    """How many robust standard deviations each lies from the median: NaN stays NaN, no spread at all gives 0 or inf."""
    middle, width = median(values), spread(values, floor)
    away = np.asarray(values, dtype=np.float64) - middle
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(away == 0, 0.0, away / width)


def threshold(comparisons: int, rate: float) -> float:
    """The score that a normal value exceeds, in any of so many comparisons, with at most this rate (one-sided,
    Bonferroni): a stated false-alarm rate, however many clients and rounds there are."""
    from statistics import NormalDist

    share = min(max(rate / max(comparisons, 1), 1e-15), 0.5)
    return NormalDist().inv_cdf(1 - share)


def slope(x: Numbers, y: Numbers) -> float:
    """Theil and Sen's: the median of the slopes between pairs (of at most 300 points, evenly taken)."""
    seen = np.isfinite(x) & np.isfinite(y)
    x, y = np.asarray(x, float)[seen], np.asarray(y, float)[seen]
    if len(x) > 300:
        some = np.linspace(0, len(x) - 1, 300).astype(int)
        x, y = x[some], y[some]
    left, right = np.triu_indices(len(x), 1)
    apart = x[right] - x[left]
    return median((y[right] - y[left])[apart != 0] / apart[apart != 0]) if np.any(apart != 0) else math.nan


def student(score: float, freedom: Floats) -> Floats:
    """What a score of the normal law becomes where the noise was taken from few numbers: as rare under Student's law
    with so many degrees of freedom (Wallace, "Bounds on normal approximations to Student's and the chi-square
    distributions", Ann. Math. Stat. 1959)."""
    few = np.maximum(freedom, 1.0)
    wider = score * (8 * few + 3) / (8 * few + 1)
    found: Floats = np.sqrt(few * np.expm1(np.minimum(wider**2 / few, 50.0)))
    return found
