"""A selection: by lot."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from fedvitals.randomness import stream
from fedvitals.train.selections.protocol import Report, wanted


@dataclass(frozen=True, slots=True)
class RandomSelection:
    """Each set of `k` clients is as likely as any other. A function of seed, turn and who is there, in any order."""

    seed: int

    def choose(self, turn: int, clients: Sequence[int], k: int, busy: Collection[int] = ()) -> list[int]:
        present = wanted(clients, k)
        if k >= len(present):
            return present
        picked = stream(self.seed, "selection", turn).choice(len(present), size=k, replace=False)
        return sorted(present[index] for index in picked)

    def heard(self, client: int, report: Report) -> None:
        """The lot remembers nothing."""
