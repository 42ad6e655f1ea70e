"""Clients that were trained as one batch: what a batch takes, fitted to those of the run.

A step of a batch has a cost of its own and one for each client that still has steps to take, so a batch takes a time
for the steps of its longest client and a time for all steps of all its clients. A client that is slow makes its batch
wait, for as long as its own end lies behind the others'.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import numpy as np

from fedvitals.profile.whatif.fitting import Fit, fitted
from fedvitals.profile.whatif.model import Model
from fedvitals.profile.whatif.simulate import arrivals
from fedvitals.store.table import Floats


class Batch(NamedTuple):
    """One that was."""

    clients: tuple[str, ...]
    steps: tuple[float, ...]
    seconds: float  # without the slow ones' own waiting
    behind_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Costs:
    """What a batch of any clients takes."""

    longest_s: float  # a step of the longest
    every_s: float  # a step of anybody
    steps: Mapping[str, float]
    usual: float  # steps, of a client of whom nothing is known
    behind_s: Mapping[str, float]

    def seconds(self, clients: Sequence[str]) -> float:
        steps = [self.steps.get(client, self.usual) for client in clients]
        if not steps:
            return 0.0
        behind = max(self.behind_s.get(client, 0.0) for client in clients)
        return self.longest_s * max(steps) + self.every_s * sum(steps) + behind


@dataclass(frozen=True, slots=True)
class Batches:
    """Those of a run, looked at once for all that is asked of them."""

    rounds: list[list[Batch]]
    costs: Costs | None  # None where they do not tell
    size: int  # of the largest
    before_s: list[float]  # a round's, as they would have it


def batches_of(model: Model) -> Batches:
    rounds = _batches(model)
    costs = _costs([batch for some in rounds for batch in some])
    size = max((len(batch.clients) for some in rounds for batch in some), default=0)
    before = [] if costs is None else _parts_s(model, costs, size, ())
    return Batches(rounds, costs, size, before)


def less_without(model: Model, away: Collection[str]) -> list[float] | None:
    """Seconds by which rounds are shorter without these clients; None where batches do not tell."""
    known = model.batches
    if known.costs is None:
        return None
    after = _parts_s(model, known.costs, known.size, away)
    return [was - now for was, now in zip(known.before_s, after, strict=True)]


def batches_s(model: Model) -> list[list[float]]:
    """Seconds of the batches of each round, as they were."""
    return [[batch.seconds + max(batch.behind_s) for batch in some] for some in model.batches.rounds]


def _parts_s(model: Model, costs: Costs, size: int, away: Collection[str]) -> list[float]:
    """The batches' part of each round, without these clients."""
    found = []
    for place in range(len(model.rounds)):
        asked = model.draw.asked(place, away)
        chunks = [asked[first : first + size] for first in range(0, len(asked), size)]
        found.append(max(arrivals([costs.seconds(chunk) for chunk in chunks], model.workers), default=0.0))
    return found


def _costs(batches: Sequence[Batch]) -> Costs | None:
    amounts = np.array([[max(batch.steps), sum(batch.steps)] for batch in batches]).reshape(len(batches), 2)
    took_s = np.array([batch.seconds for batch in batches])
    fit = fitted(amounts, took_s) or _in_proportion(amounts, took_s)
    if fit is None:
        return None
    steps: dict[str, list[float]] = defaultdict(list)
    behind: dict[str, list[float]] = defaultdict(list)
    for batch in batches:
        for client, count, seconds in zip(batch.clients, batch.steps, batch.behind_s, strict=True):
            steps[client].append(count)
            behind[client].append(seconds)
    middle = {client: float(np.median(some)) for client, some in steps.items()}
    longest_s, every_s = fit.seconds.tolist()
    usual, means = median(middle.values()), {client: sum(some) / len(some) for client, some in behind.items()}
    return Costs(longest_s, every_s, middle, usual, means)


def _in_proportion(amounts: Floats, took_s: Floats) -> Fit | None:
    """Where all batches are alike, what the longest costs is unknown: then all steps cost the same."""
    alone = fitted(amounts[:, 1:], took_s)
    return None if alone is None else Fit(np.append(0.0, alone.seconds), np.zeros((2, 2)))


def _batches(model: Model) -> list[list[Batch]]:
    """Of each round, in the order in which they began."""
    table, names = model.timeline.participations, model.timeline.clients
    rows: dict[int, dict[tuple[int, int], list[int]]] = {one.number: defaultdict(list) for one in model.rounds}
    batched = np.flatnonzero(table.attributed)
    where = (batched, table.round[batched], table.start_ns[batched], table.chunk[batched])
    for row, number, start_ns, chunk in zip(*(column.tolist() for column in where), strict=True):
        if number in rows:
            rows[number][start_ns, chunk].append(row)
    clients, end_ns = table.client.tolist(), table.end_ns.tolist()
    steps = np.nan_to_num(table.steps, nan=1.0).tolist()
    found = []
    for one in model.rounds:
        some = []
        for (start_ns, _), members in sorted(rows[one.number].items()):
            together = min(end_ns[row] for row in members)
            some.append(
                Batch(
                    tuple(names[clients[row]] for row in members),
                    tuple(steps[row] for row in members),
                    max(together - start_ns, 0) / 1e9,
                    tuple((end_ns[row] - together) / 1e9 for row in members),
                )
            )
        found.append(some)
    return found
