"""Who takes part in a round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from fedvitals.errors import JobError
from fedvitals.randomness import stream


@runtime_checkable
class Selection(Protocol):
    """One way to choose."""

    def choose(self, round: int, clients: Sequence[int], k: int) -> list[int]:
        """`k` of these clients, sorted; all of them when there are no more than that."""


@dataclass(frozen=True, slots=True)
class RandomSelection:
    """Each set of `k` clients is as likely as any other. A function of seed, round and who is there, in any order."""

    seed: int

    def choose(self, round: int, clients: Sequence[int], k: int) -> list[int]:
        if k < 1:
            raise JobError(f"train.clients_per_round = {k}: a round needs at least one client")
        present = sorted(clients)
        if k >= len(present):
            return present
        picked = stream(self.seed, "selection", round).choice(len(present), size=k, replace=False)
        return sorted(present[index] for index in picked)
