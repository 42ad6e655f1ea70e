"""What a detector is told each round, and what it answers: whom it would name now.

Ours sees the chart of a run and nothing else. These see more: every update whole, and how many bad clients there are,
because as published they are given that number.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

WINDOW = 10  # participations of a client that a verdict looks back on


@dataclass(frozen=True, slots=True, eq=False)
class Sent:
    """One round as the server has it before it aggregates."""

    round: int
    clients: tuple[str, ...]
    updates: Tensor  # [clients, size]
    weights: Tensor  # [size], of the global model that they trained on
    bad: int  # clients of this round that a fault strikes
    bad_so_far: int  # and all clients that one has struck until now


class Detector(Protocol):
    """Names clients, round by round."""

    name: str

    def named(self, sent: Sent) -> frozenset[str]:
        """Whom it would name after this round."""


class Votes:
    """Rounds that each name some clients -> one verdict: those who were named in the largest share of their last
    participations."""

    def __init__(self) -> None:
        self._last: dict[str, deque[bool]] = defaultdict(lambda: deque(maxlen=WINDOW))

    def count(self, clients: Sequence[str], named: Iterable[str]) -> None:
        guilty = set(named)
        for client in clients:
            self._last[client].append(client in guilty)

    def verdict(self, most: int) -> frozenset[str]:
        """At most so many, each named at least once; of equal ones, who was named last."""
        shares = {client: (sum(votes) / len(votes), votes[-1]) for client, votes in self._last.items() if any(votes)}
        return frozenset(sorted(shares, key=lambda client: shares[client], reverse=True)[:most])
