"""Clients that were trained as one batch: what a batch takes, fitted to those of the run.

A step of a batch has a cost of its own and one for each client that still has steps to take, so a batch takes a time
for the steps of its longest client and a time for all steps of all its clients. A client that is slow makes its batch
wait, for as long as its own end lies behind the others'.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from fedvitals.profile.whatif.fitting import Fit, fitted
from fedvitals.profile.whatif.model import Model
from fedvitals.profile.whatif.simulate import arrivals
from fedvitals.store.table import Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The participations of all batches, those of one beside each other; batches in the order in which they began."""

    client: Ints
    steps: Floats
    behind_s: Floats  # how long after the first of its batch it ended
    first: Ints  # of each batch, where it begins among them
    place: Ints  # of each batch, which of the rounds it is in
    seconds: Floats  # of each batch, without the slow ones' own waiting


@dataclass(frozen=True, slots=True)
class Costs:
    """What a batch of any clients takes."""

    longest_s: float  # a step of the longest
    every_s: float  # a step of anybody
    steps: Mapping[str, float]
    usual: float  # steps, of a client of whom nothing is known
    behind_s: Mapping[str, float]

    def seconds(self, clients: Sequence[str], size: int) -> list[float]:
        """Of batches of so many of them, one after the other."""
        if not clients:
            return []
        first = np.arange(0, len(clients), size)
        steps = np.array([self.steps.get(client, self.usual) for client in clients])
        behind = np.array([self.behind_s.get(client, 0.0) for client in clients])
        longest, behind = (np.maximum.reduceat(of, first) for of in (steps, behind))
        total: Floats = self.longest_s * longest + self.every_s * np.add.reduceat(steps, first) + behind
        return total.tolist()  # type: ignore[no-any-return]  # numpy's lists are of anything


@dataclass(frozen=True, slots=True, eq=False)
class Batches:
    """Those of a run, looked at once for all that is asked of them."""

    rows: Rows
    costs: Costs | None  # None where they do not tell
    size: int  # of the largest
    before_s: list[float]  # a round's, as they would have it


def batches_of(model: Model) -> Batches:
    rows = _rows(model)
    costs = _costs(rows, model.timeline.clients) if len(rows.first) else None
    size = int(np.diff(rows.first, append=len(rows.client)).max(initial=0))
    before = [] if costs is None else _parts_s(model, costs, size, ())
    return Batches(rows, costs, size, before)


def less_without(model: Model, away: Collection[str]) -> list[float] | None:
    """Seconds by which rounds are shorter without these clients; None where batches do not tell."""
    known = model.batches
    if known.costs is None:
        return None
    after = _parts_s(model, known.costs, known.size, away)
    return [was - now for was, now in zip(known.before_s, after, strict=True)]


def batches_s(model: Model) -> list[list[float]]:
    """Seconds of the batches of each round, as they were."""
    rows = model.batches.rows
    found: list[list[float]] = [[] for _ in model.rounds]
    if len(rows.first):
        lasted = rows.seconds + np.maximum.reduceat(rows.behind_s, rows.first)
        for place, seconds in zip(rows.place.tolist(), lasted.tolist(), strict=True):
            found[place].append(seconds)
    return found


def _parts_s(model: Model, costs: Costs, size: int, away: Collection[str]) -> list[float]:
    """The batches' part of each round, without these clients."""
    found = []
    for place in range(len(model.rounds)):
        lasting = costs.seconds(model.draw.asked(place, away), size)
        found.append(max(arrivals(lasting, model.workers), default=0.0))
    return found


def _costs(rows: Rows, names: Sequence[str]) -> Costs | None:
    longest, total = (of.reduceat(rows.steps, rows.first) for of in (np.maximum, np.add))
    amounts = np.stack([longest, total], axis=1)
    fit = fitted(amounts, rows.seconds) or _in_proportion(amounts, rows.seconds)
    if fit is None:
        return None
    order = np.argsort(rows.client, kind="stable")
    begins = np.flatnonzero(np.diff(rows.client[order], prepend=-1))
    who = [names[client] for client in rows.client[order][begins].tolist()]
    middle = [float(np.median(some)) for some in np.split(rows.steps[order], begins[1:])]
    behind = np.add.reduceat(rows.behind_s[order], begins) / np.diff(begins, append=len(order))
    longest_s, every_s = fit.seconds.tolist()
    steps = dict(zip(who, middle, strict=True))
    return Costs(longest_s, every_s, steps, median(middle), dict(zip(who, behind.tolist(), strict=True)))


def _in_proportion(amounts: Floats, took_s: Floats) -> Fit | None:
    """Where all batches are alike, what the longest costs is unknown: then all steps cost the same."""
    alone = fitted(amounts[:, 1:], took_s)
    return None if alone is None else Fit(np.append(0.0, alone.seconds), np.zeros((2, 2)))


def _rows(model: Model) -> Rows:
    table = model.timeline.participations
    numbers = np.array([one.number for one in model.rounds], dtype=np.int64)
    by_number = np.argsort(numbers, kind="stable")
    rows = np.flatnonzero(table.attributed & np.isin(table.round, numbers))
    place = by_number[np.searchsorted(numbers, table.round[rows], sorter=by_number)] if len(rows) else rows
    keys = np.stack([table.chunk[rows], table.start_ns[rows], place])
    order = np.lexsort(keys)
    first = np.flatnonzero((np.diff(keys[:, order], axis=1, prepend=-1) != 0).any(axis=0))
    rows, place = rows[order], place[order]
    end_ns = table.end_ns[rows]
    together = np.minimum.reduceat(end_ns, first) if len(first) else first
    sizes = np.diff(first, append=len(rows))
    return Rows(
        client=table.client[rows],
        steps=np.nan_to_num(table.steps[rows], nan=1.0),
        behind_s=(end_ns - np.repeat(together, sizes)) / 1e9,
        first=first,
        place=place[first],
        seconds=np.maximum(together - table.start_ns[rows][first], 0) / 1e9,
    )
