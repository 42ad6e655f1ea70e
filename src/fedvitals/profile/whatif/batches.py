"""Clients that were trained as one batch: what a batch takes, fitted to those of the run.

A step of a batch has a cost of its own and one for each client that still has steps to take, so a batch takes a time
for the steps of its longest client and a time for all steps of all its clients. A client that is slow makes its batch
wait, for as long as its own end lies behind the others'.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
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

    fit: Fit
    steps: Mapping[str, float]
    behind_s: Mapping[str, float]

    def seconds(self, clients: Sequence[str]) -> float:
        usual = float(np.median(list(self.steps.values())))
        steps = [self.steps.get(client, usual) for client in clients]
        if not steps:
            return 0.0
        behind = max(self.behind_s.get(client, 0.0) for client in clients)
        return float(self.fit.seconds @ np.array([max(steps), sum(steps)])) + behind


def less_without(model: Model, away: Collection[str]) -> list[float] | None:
    """Seconds by which rounds are shorter without these clients; None where batches do not tell."""
    found = _batches(model)
    costs = _costs([batch for some in found for batch in some])
    size = max((len(batch.clients) for some in found for batch in some), default=0)
    if costs is None or not size:
        return None

    def part_s(place: int, gone: Collection[str]) -> float:
        asked = model.draw.asked(place, gone)
        chunks = [asked[first : first + size] for first in range(0, len(asked), size)]
        return max(arrivals([costs.seconds(chunk) for chunk in chunks], model.workers), default=0.0)

    return [part_s(place, ()) - part_s(place, away) for place in range(len(model.rounds))]


def batches_s(model: Model) -> list[list[float]]:
    """Seconds of the batches of each round, as they were."""
    return [[batch.seconds + max(batch.behind_s) for batch in some] for some in _batches(model)]


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
    return Costs(fit, middle, {client: float(np.mean(some)) for client, some in behind.items()})


def _in_proportion(amounts: Floats, took_s: Floats) -> Fit | None:
    """Where all batches are alike, what the longest costs is unknown: then all steps cost the same."""
    alone = fitted(amounts[:, 1:], took_s)
    return None if alone is None else Fit(np.append(0.0, alone.seconds), np.zeros((2, 2)))


def _batches(model: Model) -> list[list[Batch]]:
    """Of each round, in the order in which they began."""
    table, names = model.timeline.participations, model.timeline.clients
    rows: dict[int, dict[tuple[int, int], list[int]]] = {one.number: defaultdict(list) for one in model.rounds}
    for row in np.flatnonzero(table.attributed).tolist():
        if int(table.round[row]) in rows:
            rows[int(table.round[row])][int(table.start_ns[row]), int(table.chunk[row])].append(row)
    found = []
    for one in model.rounds:
        some = []
        for (start_ns, _), members in sorted(rows[one.number].items()):
            ends = table.end_ns[members]
            together = int(ends.min())
            some.append(
                Batch(
                    tuple(names[int(table.client[row])] for row in members),
                    tuple(np.nan_to_num(table.steps[members], nan=1.0).tolist()),
                    max(together - start_ns, 0) / 1e9,
                    tuple(((ends - together) / 1e9).tolist()),
                )
            )
        found.append(some)
    return found
