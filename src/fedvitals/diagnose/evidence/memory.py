"""What is kept of each client from round to round, and how like its own past an update is.

Angles between one update and another hold much noise; angles between the mean of the last few and the mean of all
before them hold little. So who has quietly become another shows there first.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from fedvitals.diagnose.evidence.measures import NAMES, OWN, Directions, Parts, each_unit, unit
from fedvitals.diagnose.evidence.units import TINY, Numbers
from fedvitals.store.table import Bools, Floats, Ints

SOON, LATELY, LONG = 3, 5, 8  # participations whose mean is held against all before them
RECENT = 3  # the same of plain numbers
BEFORE = 8  # participations before a change that it is held against, at most
SPLITS = (1, 2, 3, 5, 8)  # participations since a change, at which it is looked for
LEAST_BEFORE = 3
MOST_PUSHED = 100.0  # times the usual: who sends a thousand times the others' is no more unlike them
FLOOR = 0.02  # of a spread: logs and cosines that differ by less are equal


Seats = Ints | slice  # rows of a memory: as a slice where a cohort is everybody, which spares numpy a copy a look


class Put(Protocol):
    def __call__(self, name: str, values: Numbers, rows: Bools = ...) -> None: ...


class Memory:
    """Sums and the last few, a row a client."""

    def __init__(self, clients: int, sizes: Directions) -> None:
        buckets, units, rows, _ = (0 if one is None else one.shape[1] for one in sizes)
        self.count = np.zeros(clients, np.int64)
        self.previous, self.total, self.first = (np.zeros((clients, buckets), np.float32) for _ in range(3))
        self.apart = _Recent(clients, buckets, LATELY, LONG)  # what it did unlike the cohort
        self.units = _Recent(clients, units, LATELY)
        self.rows = _Recent(clients, rows, LATELY)
        self.pushes = _Recent(clients, units, SOON, LATELY)  # unlike the cohort, in what is usual in it
        self.raw = np.full((clients, RECENT - 1, len(NAMES)), np.nan)
        self.scores = np.full((clients, LATELY - 1, len(NAMES)), np.nan)
        self.sums, self.score_sums, self.seen = (np.zeros((clients, len(NAMES))) for _ in range(3))
        self.levels = Levels(clients, len(NAMES))

    def seats(self, clients: Ints) -> Seats:
        """Where what is known of these clients stands."""
        everybody = len(clients) == len(self.count) and bool((clients == np.arange(len(clients))).all())
        return slice(None) if everybody else clients

    def own(self, clients: Seats, now: Directions, where: Parts) -> Floats:
        """[cohort, OWN]: these updates beside what their clients sent before; NaN where that is too little."""
        found = np.full((len(now.sketches), len(OWN)), np.nan)
        count = self.count[clients]
        known, longer = count > 0, count >= LATELY

        def put(name: str, values: Numbers, rows: Bools = known) -> None:
            found[rows, OWN.index(name)] = values[rows]

        total, apart = self.total[clients], unlike(now.sketches)
        put("own_previous", _dot(now.sketches, self.previous[clients]))
        put("own_mean", _dot(now.sketches, unit(total)))
        put("own_first", _dot(now.sketches, unit(self.first[clients])))
        put("own_signature", _dot(apart, unit(self.apart.sums[clients])))
        late, early = self.apart.late_and_early(clients, apart, LATELY)
        put("late_signature", _dot(unit(late), unit(early)), longer)
        put("late_steady", np.sqrt(_dot(late, late)) / LATELY, longer)
        put("late_news", _news(late, early) / LATELY, longer)
        if where.last is not None:
            put("own_last", _in_part(now.sketches, total, where.places[where.last]))
            put("late_last", _in_part(late, early, where.places[where.last]), longer)
        if where.first is not None:
            put("late_first", _in_part(late, early, where.places[where.first]), longer)
        late, early = self.apart.late_and_early(clients, apart, LONG)
        put("long_signature", _dot(unit(late), unit(early)), count >= LONG)
        put("long_news", _news(late, early) / LONG, count >= LONG)
        if now.units is not None and now.rows is not None:
            self._own_units(put, clients, now.units, now.rows)
        if now.pushes is not None:
            self._own_pushes(put, clients, beyond_cohort(now.pushes))
        return found

    def _own_units(self, put: Put, clients: Seats, units: Numbers, rows: Numbers) -> None:
        count = self.count[clients]
        longer = count >= LATELY
        put("own_units", _dot(units, unit(self.units.sums[clients])))
        late, early = self.units.late_and_early(clients, units, LATELY)
        shift = late / LATELY - early / np.maximum(count + 1 - LATELY, 1)[:, None]
        shift = shift - np.median(shift[longer], axis=0) if longer.any() else shift
        put("late_pushed", shift.max(axis=1), longer)
        put("late_pulled", shift.min(axis=1), longer)
        put("own_rows", each_unit(rows, self.rows.sums[clients], units.shape[1]))
        late, early = self.rows.late_and_early(clients, rows, LATELY)
        put("late_rows", _dot(unit(late), unit(early)), longer)
        put("late_rows_news", _news(late, early) / LATELY, longer)

    def _own_pushes(self, put: Put, clients: Seats, pushes: Numbers) -> None:
        count = self.count[clients]
        for name, length in (("push_shift", LATELY), ("push_shift_soon", SOON)):
            late, early = self.pushes.late_and_early(clients, pushes, length)
            shift = late / length - early / np.maximum(count + 1 - length, 1)[:, None]
            put(name, _log_length(shift), count >= length)
            if length == LATELY:
                put("steady_push", _log_length(late / length), count + 1 >= length)

    def remember(self, clients: Seats, now: Directions, raw: Floats, scores: Floats) -> None:
        count = self.count[clients]
        self.previous[clients] = now.sketches
        self.total[clients] += now.sketches
        early = count < RECENT
        if early.any():
            self.first[clients] += now.sketches * early[:, None]
        self.apart.add(clients, count, unlike(now.sketches))
        if now.units is not None:
            self.units.add(clients, count, now.units)
        if now.rows is not None:
            self.rows.add(clients, count, now.rows)
        if now.pushes is not None:
            self.pushes.add(clients, count, beyond_cohort(now.pushes))
        for ring, new in ((self.raw, raw), (self.scores, scores)):
            slots, seats = _slots(clients, count % ring.shape[1])
            ring[seats, slots] = new
        there = ~np.isnan(raw)
        self.sums[clients] += np.where(there, raw, 0.0)
        self.score_sums[clients] += np.where(np.isnan(scores), 0.0, scores)
        self.seen[clients] += there
        self.count[clients] = count + 1


class _Recent:
    """The sum of all of a client's vectors, its last few, and the sums of these that are held against the rest."""

    def __init__(self, clients: int, width: int, *lengths: int) -> None:
        self.sums = np.zeros((clients, width), np.float32)
        self._kept = max(lengths) - 1
        self._last = np.zeros((self._kept, clients, width), np.float32)
        self._lately = {length: np.zeros((clients, width), np.float32) for length in lengths}

    def late_and_early(self, clients: Seats, now: Numbers, length: int) -> tuple[Numbers, Numbers]:
        """The sum of this and of the last ones, so many in all, and the sum of all before them."""
        last = self._lately[length][clients]
        return last + now, self.sums[clients] - last

    def add(self, clients: Seats, count: Ints, now: Numbers) -> None:
        self.sums[clients] += now
        for length, sums in self._lately.items():
            sums[clients] += now - self._last[_slots(clients, (count + 1 - length) % self._kept)]
        self._last[_slots(clients, count % self._kept)] = now


class Levels:
    """Running sums of each number's distances from the cohort, at the last few participations: of any two, what lies
    between them is a difference."""

    SLOTS = SPLITS[-1] + BEFORE + 1

    def __init__(self, clients: int, width: int) -> None:
        self._sums = np.zeros((self.SLOTS, clients, width), np.float32)  # before participation i: in slot i
        self._last, self._squares, self._largest = (np.zeros((clients, width), np.float32) for _ in range(3))

    def split(self, clients: Seats, count: Ints, away: Floats) -> Floats:
        """Take in one more participation; gives the largest change of level that any split of the client's shows, over
        the noise from one participation to the next: its own, or a typical client's where that is more."""
        now = np.where(np.isnan(away), 0.0, away).astype(np.float32)
        sums = self._sums[_slots(clients, count % self.SLOTS)] + now
        self._sums[_slots(clients, (count + 1) % self.SLOTS)] = sums
        noise, found = self._noise(clients, count, now), np.zeros(away.shape, np.float32)
        for length in SPLITS:
            start = count + 1 - length  # participations before the split
            before = np.minimum(start, BEFORE)
            middle, first = (self._sums[_slots(clients, one % self.SLOTS)] for one in (start, start - before))
            wide = np.maximum(before, 1)[:, None].astype(np.float32)
            rise = ((sums - middle) / length - (middle - first) / wide) / (noise * np.sqrt(1 / length + 1 / wide))
            found = np.where((start >= LEAST_BEFORE)[:, None] & (np.abs(rise) > np.abs(found)), rise, found)
        return np.where((count < LEAST_BEFORE)[:, None], np.nan, found).astype(np.float64)

    def _noise(self, clients: Seats, count: Ints, now: Numbers) -> Numbers:
        """From successive differences without the largest: a change of level makes one of them large."""
        step = np.where((count > 0)[:, None], (now - self._last[clients]) ** 2, np.float32(0))
        self._last[clients] = now
        self._squares[clients] += step
        self._largest[clients] = np.maximum(self._largest[clients], step)
        left = np.maximum(count - 1, 1)[:, None]
        own = (self._squares[clients] - self._largest[clients]) / (2 * left)
        noise: Numbers = np.sqrt(np.maximum(np.maximum(own, np.median(own, axis=0)), np.float32(FLOOR**2)))
        return noise


def _slots(clients: Seats, slots: Ints) -> tuple[Ints | int, Seats]:
    """The slot of each client, which is a look that copies nothing where it is the same for everybody."""
    if not isinstance(clients, slice):
        return slots, clients
    if (slots == slots[0]).all():
        return int(slots[0]), clients
    return slots, np.arange(len(slots))


def unlike(sketches: Numbers) -> Numbers:
    """Directions less what the cohort does on average."""
    return unit(sketches - sketches.mean(axis=0))


def beyond_cohort(pushes: Numbers) -> Numbers:
    """Pushes less the cohort's median, in lengths of what is usual in it: trainings push less the longer they last."""
    apart = pushes - np.median(pushes, axis=0)
    usual = float(np.median(np.sqrt(_dot(pushes, pushes))))
    return np.clip(apart / max(usual, TINY), -MOST_PUSHED, MOST_PUSHED)


def _log_length(vectors: Numbers) -> Numbers:
    found: Numbers = np.log(np.sqrt(_dot(vectors, vectors)) + FLOOR)
    return found


def _in_part(a: Numbers, b: Numbers, place: slice) -> Numbers:
    """The cosine in one layer."""
    return _dot(unit(a[:, place]), unit(b[:, place]))


def _news(late: Numbers, early: Numbers) -> Numbers:
    """How long the sum of the last ones is across what came before them."""
    along = _dot(late, unit(early))
    found: Numbers = np.sqrt(np.maximum(_dot(late, late) - along**2, 0.0))
    return found


def _dot(a: Numbers, b: Numbers) -> Numbers:
    found: Numbers = np.einsum("ij,ij->i", a, b)
    return found
