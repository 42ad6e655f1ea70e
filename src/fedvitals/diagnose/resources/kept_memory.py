"""What a run keeps from round to round: bytes that its allocator has given out, at the end of the rounds.

Unlike resident memory they hardly move in a run that keeps nothing, so that ten rounds are enough to tell.
"""

from __future__ import annotations

import json
from typing import NamedTuple

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.robust import slope, spread
from fedvitals.diagnose.trends import trend
from fedvitals.store.table import Floats, Ints

SPAN = "fl.heap"
WARM_UP = 2  # rounds in which optimizers, caches and buffers are made
LEAST_POINTS = 5
FEW_POINTS = 7  # below which every single step must grow
EACH = 0.2e6  # bytes a round
LEAST = 3e6  # bytes in all
ABOVE_NOISE = 5.0  # times the spread around the line
CHANCE = 0.002


class Kept(NamedTuple):
    """Growth that goes on."""

    rounds: Ints
    used: Floats  # bytes at the end of each
    each: float  # bytes a round


def heap(chart: Chart) -> tuple[Ints, Floats]:
    """Rounds in order, and the bytes in use when each was over."""
    found: dict[int, float] = {}
    for span in chart.spans:
        if span.name == SPAN and span.attributes is not None:
            told = _told(span.attributes)
            if told is not None:
                found[told[0]] = told[1]
    rounds = np.array(sorted(found), dtype=np.int64)
    return rounds, np.array([found[one] for one in rounds.tolist()], dtype=np.float64)


def _told(text: str) -> tuple[int, float] | None:
    try:
        document = json.loads(text)
        number, used = document["round"], document["heap_bytes"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return (number, float(used)) if type(number) is int and type(used) is int and abs(number) < 2**53 else None


def kept(chart: Chart) -> Kept | None:
    """Growth after the first rounds that is steady, far above the noise, and not over."""
    rounds, used = heap(chart)
    later = rounds >= rounds[0] + WARM_UP if len(rounds) else np.zeros(0, bool)
    rounds, used = rounds[later], used[later]
    if len(rounds) < LEAST_POINTS:
        return None
    places = rounds.astype(np.float64)
    each = slope(places, used)
    total = each * float(places[-1] - places[0])
    if each < EACH or total < LEAST or total < ABOVE_NOISE * spread(used - each * places):
        return None
    return Kept(rounds, used, each) if _steady(places, used, each) and _goes_on(used) else None


def _steady(places: Floats, used: Floats, each: float) -> bool:
    if len(used) < FEW_POINTS:
        return bool(np.all(np.diff(used) >= each / 4 * np.diff(places)))
    third = max(2, len(used) // 3)
    return bool(used[-third:].min() > used[:third].max()) and trend(places, used).chance <= CHANCE


def _goes_on(used: Floats) -> bool:
    """What fills up, like a cache, grows less and less."""
    half = len(used) // 2
    return bool(used[-1] - used[half] >= (used[half] - used[0]) / 3)
