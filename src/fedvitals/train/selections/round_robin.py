"""A selection: everybody in turn."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fedvitals.train.selections.protocol import Report, wanted


class RoundRobinSelection:
    """Who was asked longest ago, or never, comes first; of equals the one with the lower number."""

    def __init__(self) -> None:
        self._asked: dict[int, int] = {}  # the last turn, by client

    def choose(self, turn: int, clients: Sequence[int], k: int, busy: Collection[int] = ()) -> list[int]:
        present = wanted(clients, k)
        chosen = sorted(present, key=lambda client: (self._asked.get(client, -1), client))[:k]
        self._asked |= dict.fromkeys(chosen, turn)
        return sorted(chosen)

    def heard(self, client: int, report: Report) -> None:
        """A turn is a turn, whatever came of it."""
