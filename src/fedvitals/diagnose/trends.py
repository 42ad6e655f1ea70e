"""Does a series grow, and when did it change? Rank tests, so that a few wild values decide nothing."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from fedvitals.diagnose.robust import Numbers, median, slope, spread

MOST_POINTS = 400  # evenly taken of longer series: a trend that needs more is no trend


class Trend(NamedTuple):
    """How a series goes over its places."""

    slope: float  # Theil and Sen's, a place
    tau: float  # Kendall's, -1 to 1
    chance: float  # that a series without a trend rises so steadily


class Change(NamedTuple):
    """Where a series splits best into a before and an after."""

    place: int  # the first of the after
    before: float  # medians
    after: float
    score: float  # the distance, in robust standard errors


def trend(x: Numbers, y: Numbers) -> Trend:
    """Mann and Kendall's test for a rise."""
    x, y = _thinned(np.asarray(x, float), np.asarray(y, float))
    n = len(y)
    if n < 3:
        return Trend(math.nan, 0.0, 1.0)
    left, right = np.triu_indices(n, 1)
    signs = float(np.sign(y[right] - y[left]).sum())
    _, ties = np.unique(y, return_counts=True)
    variance = (n * (n - 1) * (2 * n + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18
    z = (signs - np.sign(signs)) / math.sqrt(variance) if variance > 0 else 0.0
    return Trend(slope(x, y), signs / (n * (n - 1) / 2), 1 - NormalDist().cdf(z))


def change(y: Numbers, least: int = 3) -> Change | None:
    """The split that leaves the least distance from the medians of its two sides, and how far these lie apart for the
    noise between neighbours; None for too short a series."""
    values = np.asarray(y, float)
    values = np.where(np.isfinite(values), values, median(values))
    n = len(values)
    if n < 2 * least:
        return None
    noise = spread(np.diff(values)) / math.sqrt(2)
    floor = 1e-9 * max(float(np.abs(values).max()), 1e-300)
    place = min(_places(n, least), key=lambda one: _off(values[:one]) + _off(values[one:]))
    before, after = float(np.median(values[:place])), float(np.median(values[place:]))
    error = max(noise, floor) * math.sqrt(1 / place + 1 / (n - place)) * math.sqrt(math.pi / 2)
    return Change(place, before, after, abs(after - before) / error)


def _off(values: Numbers) -> float:
    return float(np.abs(values - np.median(values)).sum())


def _places(n: int, least: int) -> list[int]:
    return sorted({int(one) for one in np.linspace(least, n - least, min(n - 2 * least + 1, 200))})


def _thinned(x: Numbers, y: Numbers) -> tuple[Numbers, Numbers]:
    seen = np.isfinite(x) & np.isfinite(y)
    x, y = x[seen], y[seen]
    if len(x) > MOST_POINTS:
        some = np.linspace(0, len(x) - 1, MOST_POINTS).astype(int)
        x, y = x[some], y[some]
    return x, y
