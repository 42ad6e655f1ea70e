"""Is a difference more than noise? Bootstraps, with a fixed seed, so that the same runs get the same answer.

Rounds of one run follow on each other: what slows one slows the next. So rounds are drawn in blocks, as long as the
square root of their number. (B. Efron and R. Tibshirani, An Introduction to the Bootstrap, 1993; H. Künsch, The
jackknife and the bootstrap for general stationary observations, Annals of Statistics 17, 1989.)
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedvitals.store.table import Floats

DRAWS = 2_000
SURE = 0.99  # of the interval: many numbers are compared, and a false alarm costs somebody an afternoon
LEAST_ROUNDS = 6  # of fewer, nothing is said
LEAST_SEEDS = 3


class Interval(NamedTuple):
    """Where a ratio lies, all but certainly."""

    ratio: float  # of the other's to the first's
    low: float
    high: float

    @property
    def real(self) -> bool:
        """Whether it is no 1."""
        return self.low > 1.0 or self.high < 1.0


def ratio_of_rounds(first: Floats, other: Floats, *, sums: bool = False) -> Interval | None:
    """Of the medians of two series of rounds, or of their sums, each with its own rounds drawn again; None for too few
    of them."""
    first, other = first[np.isfinite(first)], other[np.isfinite(other)]
    if min(len(first), len(other)) < LEAST_ROUNDS:
        return None
    taken = np.sum if sums else np.median
    generator = np.random.default_rng(0)
    below, above = taken(_blocks(first, generator), axis=1), taken(_blocks(other, generator), axis=1)
    if float(taken(first)) <= 0 or float(below.min()) <= 0:
        return None
    return _interval(float(taken(other) / taken(first)), above / below)


def ratio_of_seeds(first: Floats, other: Floats) -> Interval | None:
    """Of the means over runs that differ by their seed alone; None for too few of them."""
    first, other = first[np.isfinite(first)], other[np.isfinite(other)]
    if min(len(first), len(other)) < LEAST_SEEDS or abs(float(first.mean())) <= 0:
        return None
    ratio, spread = float(other.mean() / first.mean()), _relative_error(first, other)
    width = _student(len(first) + len(other) - 2) * spread * abs(ratio)
    return Interval(ratio, ratio - width, ratio + width)


def _blocks(values: Floats, generator: np.random.Generator) -> NDArray[np.float64]:
    """[DRAWS, rounds]: blocks of neighbours, drawn again and again."""
    count = len(values)
    length = max(round(math.sqrt(count)), 1)
    starts = generator.integers(0, count - length + 1, size=(DRAWS, -(-count // length)))
    places = (starts[:, :, None] + np.arange(length)).reshape(DRAWS, -1)[:, :count]
    drawn: NDArray[np.float64] = values[places]
    return drawn


def _interval(ratio: float, drawn: Floats) -> Interval:
    low, high = np.quantile(drawn, [(1 - SURE) / 2, (1 + SURE) / 2])
    return Interval(ratio, min(float(low), ratio), max(float(high), ratio))


def _relative_error(first: Floats, other: Floats) -> float:
    parts = [float(some.var(ddof=1)) / len(some) / float(some.mean()) ** 2 for some in (first, other) if some.mean()]
    return math.sqrt(sum(parts))


def _student(freedom: int) -> float:
    """The quantile of Student's distribution that SURE needs: of few runs a bootstrap knows too little."""
    known = {1: 63.66, 2: 9.92, 3: 5.84, 4: 4.60, 5: 4.03, 6: 3.71, 7: 3.50, 8: 3.36, 9: 3.25, 10: 3.17}
    return known.get(freedom, 2.58 + 5.9 / freedom)
