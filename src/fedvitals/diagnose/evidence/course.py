"""Measures -> their course: each against the cohort of its round and against the client's own past.

One pass over the rounds with a little memory a client. Each measure is seen in several ways: as a robust score in the
cohort now, over the last participations and over all; as a change from the client's own past, now and over the last
ones, again as scores in the cohort (what everybody does in a round is no news); and, because a cohort of five has no
spread to speak of, the plain distances from the cohort's median of the value and of its change.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedvitals.diagnose.chart import NORM, Chart, Singles, Updates
from fedvitals.diagnose.evidence.measures import (
    COHORT,
    NAMES,
    OWN,
    SINGLE,
    TINY,
    Numbers,
    Parts,
    cohort_measures,
    parts,
    pushed_units,
    rows_of,
    singles,
    unit,
)
from fedvitals.diagnose.robust import TO_SIGMA
from fedvitals.store.table import Floats, Ints

WAYS = ("now", "lately", "ever", "change", "change_lately", "away", "moved")
CONTEXT = ("cohort", "past", "agreement", "sickness", "wild", "learnt", "classes")
FEATURES = (
    *(f"{name}.{way}" for way in WAYS for name in NAMES),
    *(f"context.{name}" for name in CONTEXT),
)
LATELY = 5
RECENT = 3  # of a change: these, against everything before them
FLOOR = 0.02  # of a spread: logs and cosines that differ by less are equal
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


class _Memory:
    """What is kept of each client from round to round."""

    def __init__(self, clients: int, buckets: int, units: int) -> None:
        self.count = np.zeros(clients, np.int64)
        self.previous = np.zeros((clients, buckets), np.float32)
        self.total = np.zeros((clients, buckets), np.float32)
        self.first = np.zeros((clients, buckets), np.float32)
        self.apart = np.zeros((clients, buckets), np.float32)  # the sum of what it did unlike the cohort
        self.units = np.zeros((clients, units))
        self.raw = np.full((clients, RECENT - 1, len(NAMES)), np.nan)
        self.scores = np.full((clients, LATELY - 1, len(NAMES)), np.nan)
        self.sums, self.score_sums, self.seen = (np.zeros((clients, len(NAMES))) for _ in range(3))


def course(chart: Chart) -> Course:
    """The course of a run. Asked for through `chart.shared(course)`: several rules want it."""
    out = np.full((len(FEATURES), len(chart.participations)), np.nan, np.float32).T  # the scorer goes by columns
    updates = chart.updates
    if updates is None or updates.sketches is None:
        return Course(out, np.empty((len(out), len(NAMES))), np.empty(0, np.int64))
    plain = np.full((len(out), len(NAMES)), np.nan)
    where, alone, pushed = parts(updates), singles(chart, updates), pushed_units(updates)
    memory = _Memory(len(chart.clients), updates.sketches.shape[1], 0 if pushed is None else pushed.shape[1])
    mood = _Mood()
    measured = []
    for _, cohort in chart.cohorts:
        rows = rows_of(chart, cohort)
        if len(rows) < LEAST_COHORT:
            continue
        raw, sketches, units = _raw(updates, rows, alone, pushed, where, memory, chart.participations.client[rows])
        clients = chart.participations.client[rows]
        context = mood.context(chart, cohort, rows, raw, updates)
        seen = _seen(raw, memory, clients)
        out[rows] = np.concatenate([*seen, _with_past(context, memory, clients)], axis=1)
        _remember(memory, clients, raw, seen[0].astype(np.float32), sketches, units)
        plain[rows] = raw
        measured.append(rows)
    return Course(out, plain, np.concatenate(measured) if measured else np.empty(0, np.int64))


def _raw(
    updates: Updates, rows: Ints, alone: Floats, pushed: Floats | None, where: Parts, memory: _Memory, clients: Ints
) -> tuple[Floats, Numbers, Numbers | None]:
    """The measures of one round, and the directions that they came from."""
    sketches = unit(_sketches(updates, rows))
    units = None if pushed is None else unit(np.nan_to_num(pushed[rows]))
    norms = np.maximum(updates.stats[rows, :, NORM].astype(np.float64), TINY)
    shares = np.log(norms / np.sqrt((norms**2).sum(axis=1, keepdims=True)))
    together = cohort_measures(sketches, units, np.maximum(shares, -12.0), where)
    own = np.full((len(rows), len(OWN)), np.nan)
    known = memory.count[clients] > 0
    mean = sketches.mean(axis=0)
    own[known, 0] = (sketches * memory.previous[clients]).sum(axis=1)[known]
    own[known, 1] = (sketches * unit(memory.total[clients])).sum(axis=1)[known]
    own[known, 2] = (sketches * unit(memory.first[clients])).sum(axis=1)[known]
    own[known, 3] = (unit(sketches - mean) * unit(memory.apart[clients])).sum(axis=1)[known]
    if units is not None:
        own[known, 4] = (units * unit(memory.units[clients])).sum(axis=1)[known]
    return np.concatenate([alone[rows], together, own], axis=1), sketches, units


def _sketches(updates: Updates, rows: Ints) -> Numbers:
    return np.empty((0, 0)) if updates.sketches is None else updates.sketches[rows]


def _seen(raw: Floats, memory: _Memory, clients: Ints) -> tuple[Floats, ...]:
    """The ways, in the order of WAYS."""
    now, away = _scored(raw)
    lately = _mean(np.concatenate([memory.scores[clients], now[:, None]], axis=1))
    past, times = memory.sums[clients], memory.seen[clients]
    with np.errstate(invalid="ignore", divide="ignore"):
        ever = (memory.score_sums[clients] + np.nan_to_num(now)) / (times + ~np.isnan(now))
        change, moved = _scored(raw - past / times)
        last = np.concatenate([memory.raw[clients], raw[:, None]], axis=1)
        earlier = (past - np.nansum(last[:, :-1], axis=1)) / (times - (~np.isnan(last[:, :-1])).sum(axis=1))
        change_lately = scores(_mean(last) - earlier)
    return now, lately, ever, change, change_lately, away, moved


def _mean(values: Floats) -> Floats:
    """Over the middle axis, of what is there."""
    there = ~np.isnan(values)
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Floats = np.where(there, values, 0.0).sum(axis=1) / there.sum(axis=1)
    return found


def scores(values: Floats) -> Floats:
    """Robust scores a column; NaN stays NaN, a column with fewer than LEAST_COHORT values is NaN."""
    return _scored(values)[0]


def _scored(values: Floats) -> tuple[Floats, Floats]:
    """The scores, and the plain distances from the median."""
    middle, count = _medians(values)
    away = values - middle
    width, _ = _medians(np.abs(away))
    found = np.clip(away / np.maximum(TO_SIGMA * width, FLOOR), -MOST, MOST)
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


def _remember(
    memory: _Memory, clients: Ints, raw: Floats, now: Singles, sketches: Numbers, units: Numbers | None
) -> None:
    memory.count[clients] += 1
    memory.previous[clients] = sketches
    memory.total[clients] += sketches
    early = memory.count[clients] <= RECENT
    memory.first[clients[early]] += sketches[early]
    memory.apart[clients] += unit(sketches - sketches.mean(axis=0))
    if units is not None:
        memory.units[clients] += units
    for ring, new in ((memory.raw, raw), (memory.scores, now)):
        ring[clients] = np.concatenate([ring[clients][:, 1:], new[:, None]], axis=1)
    memory.sums[clients] += np.nan_to_num(raw)
    memory.score_sums[clients] += np.nan_to_num(now)
    memory.seen[clients] += ~np.isnan(raw)


def _with_past(context: Floats, memory: _Memory, clients: Ints) -> Floats:
    rows = np.repeat(context[None], len(clients), axis=0)
    rows[:, CONTEXT.index("past")] = np.log1p(memory.count[clients])
    return rows


class _Mood:
    """How the whole cohort does: the sickness of the model is not the fault of whoever trains on it."""

    def __init__(self) -> None:
        self._best = np.inf
        self._first = np.nan
        self._wild = 0.0

    def context(self, chart: Chart, cohort: Ints, rows: Ints, raw: Floats, updates: Updates) -> Floats:
        losses = chart.participations.first_loss[cohort]
        losses = losses[np.isfinite(losses)]
        loss = float(np.median(losses)) if losses.size else np.nan
        self._best = min(self._best, loss) if np.isfinite(loss) else self._best
        self._first = loss if np.isnan(self._first) else self._first
        sickness = np.log(max(loss, 1e-6) / max(self._best, 1e-6)) if np.isfinite(loss) else np.nan
        learnt = np.log(max(self._first, 1e-6) / max(loss, 1e-6)) if np.isfinite(loss) else np.nan
        found = np.array(
            [
                np.log(len(rows)),
                np.nan,
                np.median(raw[:, len(SINGLE) + COHORT.index("cosine")]),
                sickness,
                self._wild,
                learnt,
                np.log(max(updates.layout.units, 1)),
            ]
        )
        norm = raw[:, SINGLE.index("norm")]
        wild = max(float(np.nanmax(norm) - np.nanmedian(norm)), 0.0)
        missing = 1.0 - len(rows) / max(int(updates.present[cohort].sum()), 1)
        self._wild = max(0.5 * self._wild, wild, 10.0 * missing)  # fades as the model recovers
        return found
