"""Measures -> their course: each against the cohort of its round and against the client's own past.

One pass over the rounds with a little memory a client. Each measure is seen in several ways: as a robust score in the
cohort now, over the last participations and over all; these two again as scores in the cohort, because where
everybody keeps to ways of his own a lasting difference is no news; as a change of the last ones from the client's own
past, in the same manner; and, because a cohort of five has no spread to speak of, the plain distance from the
cohort's median.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedvitals.diagnose.chart import NORM, Chart, Singles, Updates
from fedvitals.diagnose.evidence.measures import (
    NAMES,
    SINGLE,
    Directions,
    cohort_measures,
    parts,
    rows_of,
    singles,
    trained,
    trained_sketches,
    unit,
)
from fedvitals.diagnose.evidence.memory import FLOOR, Memory, Seats
from fedvitals.diagnose.evidence.sizes import Sizes, Widened
from fedvitals.diagnose.evidence.units import TINY, pushed_rows, pushed_units, pushes
from fedvitals.diagnose.guessing import goes_on
from fedvitals.diagnose.robust import TO_SIGMA
from fedvitals.store.table import Floats, Ints

WAYS = ("now", "lately", "ever", "change_lately", "away", "split", "lasting", "always")
COHORTS = ("cohort", "agreement", "sickness", "wild", "learnt", "classes", "weights", "repeats", "spread", "usual_rows")
CLIENTS = ("past", "rows", "steps")
CONTEXT = (*COHORTS, *CLIENTS)  # what the others do, and how much a client has: the less, the more is chance
FEATURES = (
    *(f"{name}.{way}" for way in WAYS for name in NAMES),
    *(f"context.{name}" for name in CONTEXT),
)
MOST = 50.0  # a score beyond this says no more
LEAST_COHORT = 4


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """What is known of each participation when its round ends. `features` is NaN where nothing can be said."""

    features: Singles  # [participations, FEATURES]
    raw: Floats  # [participations, NAMES]: the measures themselves
    measured: Ints  # rows that have them

    @property
    def known(self) -> Singles:
        """The features of the measured rows; without a copy where that is all of them in order."""
        every = np.array_equal(self.measured, np.arange(len(self.features)))
        return self.features if every else self.features[self.measured]

    def column(self, name: str) -> Floats:
        return self.features[:, FEATURES.index(name)].astype(np.float64)


def course(chart: Chart) -> Course:
    """The course of a run. Asked for through `chart.shared(course)`: several rules want it."""
    out = np.full((len(FEATURES), len(chart.participations)), np.nan, np.float32).T  # the scorer goes by columns
    updates = chart.updates
    if updates is None or updates.sketches is None:
        return Course(out, np.empty((len(out), len(NAMES))), np.empty(0, np.int64))
    plain = np.full((len(out), len(NAMES)), np.nan)
    where, alone = parts(updates), singles(chart, updates)
    sketches = trained_sketches(updates, updates.sketches)
    every = Directions(sketches, pushed_units(updates), pushed_rows(updates), pushes(updates))
    memory = Memory(len(chart.clients), every)
    mood, sizes = _Mood(chart.shared(goes_on)), Sizes(len(NAMES))
    table = chart.participations
    has = np.log(np.maximum(np.stack([table.samples, table.steps], axis=1), 1.0))  # rows, and steps that they make
    measured = []
    for _, cohort in chart.cohorts:
        rows = rows_of(chart, cohort)
        if len(rows) < LEAST_COHORT:
            continue
        clients, now = memory.seats(table.client[rows]), _directions(every, rows)
        together = cohort_measures(now, log_shares(updates, rows), where)
        raw = np.concatenate([alone[rows], together, memory.own(clients, now, where)], axis=1)
        context = np.r_[mood.context(chart, cohort, rows, raw, updates), np.median(has[rows, 0])]
        seen = _seen(raw, memory, clients, sizes.at(has[rows, 0] - context[-1]))
        own = (np.repeat(context[None], len(rows), axis=0), np.log1p(memory.count[clients])[:, None], has[rows])
        out[rows] = np.concatenate([*seen, *own], axis=1)
        memory.remember(clients, now, raw, seen[0])
        plain[rows] = raw
        measured.append(rows)
    return Course(out, plain, np.concatenate(measured) if measured else np.empty(0, np.int64))


def _directions(every: Directions, rows: Ints) -> Directions:
    """Those of one round, as unit rows; pushes as they are."""
    units, whole = (None if one is None else unit(np.nan_to_num(one[rows])) for one in every[1:3])
    far = None if every.pushes is None else np.nan_to_num(every.pushes[rows])
    return Directions(unit(every.sketches[rows]), units, whole, far)


def log_shares(updates: Updates, rows: Ints) -> Floats:
    """Of each layer in the update's norm."""
    norms = np.maximum(updates.stats[rows, :, NORM].astype(np.float64) * trained(updates), TINY)
    logs: Floats = np.maximum(np.log(norms / np.sqrt((norms**2).sum(axis=1, keepdims=True))), -12.0)
    return logs


def _seen(raw: Floats, memory: Memory, clients: Seats, widened: Widened) -> tuple[Floats, ...]:
    """The ways, in the order of WAYS."""
    now, away = _scored(raw, widened.taken_in)
    lately = _mean(np.concatenate([memory.scores[clients], now[:, None]], axis=1))
    past, times = memory.sums[clients], memory.seen[clients]
    with np.errstate(invalid="ignore", divide="ignore"):
        ever = (memory.score_sums[clients] + np.nan_to_num(now)) / (times + ~np.isnan(now))
        last = np.concatenate([memory.raw[clients], raw[:, None]], axis=1)
        earlier = (past - np.nansum(last[:, :-1], axis=1)) / (times - (~np.isnan(last[:, :-1])).sum(axis=1))
        change_lately, _ = _scored(_mean(last) - earlier, widened)
        split = memory.levels.split(clients, memory.count[clients], away)
        split = np.clip(split / np.maximum(TO_SIGMA * _medians(np.abs(split))[0], 1.0), -MOST, MOST)
        lasting, always = scores(lately), scores(ever)
    return now, lately, ever, change_lately, away, split, lasting, always


def _mean(values: Floats) -> Floats:
    """Over the middle axis, of what is there."""
    there = ~np.isnan(values)
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Floats = np.where(there, values, 0.0).sum(axis=1) / there.sum(axis=1)
    return found


def scores(values: Floats) -> Floats:
    """Robust scores a column; NaN stays NaN, a column with fewer than LEAST_COHORT values is NaN."""
    return _scored(values)[0]


def _scored(values: Floats, widened: Callable[[Floats], Floats] | None = None) -> tuple[Floats, Floats]:
    """The scores, and the plain distances from the median. `widened` says by what a client's spread is multiplied."""
    middle, count = _medians(values)
    away = values - middle
    width, _ = _medians(np.abs(away))
    spread = np.maximum(TO_SIGMA * width, FLOOR)
    found = np.clip(away / (spread if widened is None else spread * widened(away)), -MOST, MOST)
    found[:, count < LEAST_COHORT] = np.nan
    return found, away


def _medians(values: Floats) -> tuple[Floats, Ints]:
    """Of each column, of what is not NaN, and how many that are."""
    count = (~np.isnan(values)).sum(axis=0)
    ordered = np.sort(values, axis=0)  # NaN last
    low, high = np.maximum(count - 1, 0) // 2, count // 2
    high = np.minimum(high, len(values) - 1)
    columns = np.arange(values.shape[1])
    return 0.5 * (ordered[low, columns] + ordered[high, columns]), count


def _middle(values: Floats) -> float:
    """The median of what is there."""
    there = values[~np.isnan(values)]
    return float(np.median(there)) if len(there) else float("nan")


def _spread(values: Floats) -> float:
    """How far apart the middle half of them is, as a logarithm: whatever a few of them do."""
    low, high = np.quantile(values, [0.25, 0.75])
    return float(np.log(high - low + FLOOR))


class _Mood:
    """How the whole cohort does: the sickness of the model is not the fault of whoever trains on it."""

    def __init__(self, first: float) -> None:
        self._best = np.inf
        self._first = first  # what it began to learn from; NaN: what the first cohort tells
        self._wild = 0.0

    def context(self, chart: Chart, cohort: Ints, rows: Ints, raw: Floats, updates: Updates) -> Floats:
        losses = chart.participations.first_loss[cohort]
        losses = losses[np.isfinite(losses)]
        loss = float(np.median(losses)) if losses.size else np.nan
        self._best = min(self._best, loss) if np.isfinite(loss) else self._best
        self._first = loss if np.isnan(self._first) else self._first
        sickness = np.log(max(loss, 1e-6) / max(self._best, 1e-6)) if np.isfinite(loss) else np.nan
        learnt = np.log(max(self._first, 1e-6) / max(loss, 1e-6)) if np.isfinite(loss) else np.nan
        norm = raw[:, SINGLE.index("norm")]
        found = np.array(
            [
                np.log(len(rows)),
                np.median(raw[:, NAMES.index("cosine")]),
                sickness,
                self._wild,
                learnt,
                np.log(max(updates.layout.units, 1)),
                np.log(max(sum(layer.size for layer in updates.layout.layers), 1)),
                _middle(raw[:, NAMES.index("own_previous")]),
                _spread(norm),
            ]
        )
        wild = max(float(np.nanmax(norm) - np.nanmedian(norm)), 0.0)
        missing = 1.0 - len(rows) / max(int(updates.present[cohort].sum()), 1)
        self._wild = max(0.5 * self._wild, wild, 10.0 * missing)  # fades as the model recovers
        return found
