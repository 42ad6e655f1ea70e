"""Who would have been asked in each round, had others been away.

Where the engine's draw, repeated from the seed, gives the cohorts that were recorded, the draw is known, and what it
would have given is too. Elsewhere a cohort stays as it was, and a client that others would have had to stand in for is
replaced at random.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fedvitals.profile.timeline import Timeline
from fedvitals.profile.whatif.told import Told
from fedvitals.randomness import chance, stream
from fedvitals.vocabulary import Outcome


class Draw(Protocol):
    """One way of choosing."""

    @property
    def assumes(self) -> str:
        """What is taken for granted, in words."""

    @property
    def comes_and_goes(self) -> bool:
        """Whether somebody may be there at a later look who was not at the first."""

    def asked(self, place: int, away: Collection[str], look: int = 0) -> list[str]:
        """The clients of the round in this place, without those that are away. `look` counts vain looks before it."""

    def taken(self, turn: int, step: int, busy: Collection[str], free: int, look: int = 0) -> list[str]:
        """Without rounds: who takes the free places at this turn of asking, in this step of the server."""


@dataclass(frozen=True, slots=True)
class BySeed:
    """The engine's own draw (train/selections and train/network.py; a test holds them and this together)."""

    seed: int
    rounds: Sequence[int]
    everybody: Sequence[str]
    count: int
    available: Mapping[str, float]  # the chance of being there, where it is below 1
    excluded: frozenset[str]
    assumes: str = "the engine draws its clients from the same seed"

    @property
    def comes_and_goes(self) -> bool:
        return bool(self.available)

    def asked(self, place: int, away: Collection[str], look: int = 0) -> list[str]:
        number = self.rounds[place]
        return self._chosen(number, self._present(number, look, away), self.count)

    def taken(self, turn: int, step: int, busy: Collection[str], free: int, look: int = 0) -> list[str]:
        if len(busy) >= len(self.everybody):  # without looking at each, over and over
            return []
        return self._chosen(turn, self._present(step, look, busy), free)

    def _present(self, number: int, look: int, away: Collection[str]) -> list[str]:
        gone = self.excluded.union(away)
        return [one for one in self.everybody if one not in gone and self._there(one, number, look)]

    def _chosen(self, turn: int, there: list[str], count: int) -> list[str]:
        if count >= len(there):
            return there
        picked = stream(self.seed, "selection", turn).choice(len(there), size=count, replace=False)
        return [there[index] for index in sorted(picked.tolist())]

    def _there(self, client: str, number: int, look: int) -> bool:
        share = self.available.get(client, 1.0)
        return share >= 1.0 or chance(self.seed, "available", client, number, look) < share


@dataclass(frozen=True, slots=True)
class AsRecorded:
    """The cohorts that were; for somebody who is away comes somebody else who was not asked, where there is anybody."""

    cohorts: Sequence[Sequence[str]]
    everybody: Sequence[str]
    assumes: str = "the same clients are asked; for one who is away another comes, at random"
    comes_and_goes: bool = False

    def asked(self, place: int, away: Collection[str], look: int = 0) -> list[str]:
        cohort = self.cohorts[place]
        left = [one for one in cohort if one not in away]
        missing = len(cohort) - len(left)
        if not missing:
            return left
        there = set(cohort)
        others = [one for one in self.everybody if one not in away and one not in there]
        order = stream(0, "what-if replacements", place).permutation(len(others)).tolist()
        return left + [others[index] for index in order[:missing]]

    def taken(self, turn: int, step: int, busy: Collection[str], free: int, look: int = 0) -> list[str]:
        if len(busy) >= len(self.everybody):
            return []
        idle = [one for one in self.everybody if one not in busy]
        order = stream(0, "what-if places", turn).permutation(len(idle)).tolist()
        return [idle[index] for index in order[:free]]


def draw_of(timeline: Timeline, told: Told) -> Draw:
    """The engine's where it explains what was recorded."""
    recorded, known = as_recorded(timeline), _by_seed(timeline, told)
    return known if known is not None and _explains(known, timeline, recorded.cohorts) else recorded


def as_recorded(timeline: Timeline) -> AsRecorded:
    """Without a word on how clients were chosen; those of a round are in the order in which they began."""
    table = timeline.participations
    found: dict[int, list[tuple[int, int]]] = {one.number: [] for one in timeline.rounds}
    rows = zip(table.round.tolist(), table.start_ns.tolist(), table.client.tolist(), strict=True)
    for number, start_ns, client in rows:
        if number in found:
            found[number].append((start_ns, client))
    cohorts = [[timeline.clients[client] for _, client in sorted(found[one.number])] for one in timeline.rounds]
    return AsRecorded(cohorts, timeline.clients)


def _by_seed(timeline: Timeline, told: Told) -> BySeed | None:
    everybody = told.everybody() if told.is_job and told.text("server.selection") == "random" else ()
    seed = told.config.get("seed")
    if not everybody or type(seed) is not int:
        return None
    wanted = told.number("train.clients_per_round", 0) * told.number("server.over_select", 1.0)
    there = {client: (told.device(client) or {}).get("available", 1.0) for client in everybody}
    return BySeed(
        seed=seed,
        rounds=[one.number for one in timeline.rounds],
        everybody=everybody,
        count=math.ceil(round(wanted, 9)),
        available={client: share for client, share in there.items() if share < 1.0},
        excluded=told.names("train.exclude"),
    )


def _explains(draw: BySeed, timeline: Timeline, cohorts: Sequence[Sequence[str]]) -> bool:
    """Clients that were late are away until they are done."""
    table = timeline.participations
    late = [row for row, outcome in enumerate(table.outcome.tolist()) if outcome == Outcome.LATE]
    busy = [(timeline.clients[int(table.client[row])], int(table.round[row]), int(table.end_ns[row])) for row in late]
    for place, one in enumerate(timeline.rounds):
        away = {client for client, number, end_ns in busy if number < one.number and end_ns > one.start_ns}
        if sorted(draw.asked(place, away)) != sorted(cohorts[place]):
            return False
    return bool(timeline.rounds)
