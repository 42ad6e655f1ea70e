"""A selection for asynchronous training: clients whose rows teach most and whose updates come fresh.

Jiang et al., Pisces: Efficient Federated Learning via Guided Asynchronous Training (SoCC 2022), 4.2: utility is what a
client's rows have to teach, divided by a power of the staleness that its updates had of late. A slow client is not shut
out for being slow, as nobody waits for it. Of the paper only the choice of clients is here: not its pace of
aggregation, and not its search for clients with corrupt rows, which `fedvitals doctor` looks for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence

import numpy as np

from fedvitals.randomness import stream
from fedvitals.train.selections.protocol import Report, wanted

STALE_POWER = 0.5  # beta
REMEMBERED = 5  # participations whose staleness is averaged


class PiscesSelection:
    """Who was never asked comes first, by lot; then the highest utility."""

    def __init__(self, seed: int, clients: int) -> None:
        self._seed = seed
        self._utility = np.full(clients, np.inf)
        self._staleness: dict[int, deque[int]] = {}

    def choose(self, turn: int, clients: Sequence[int], k: int, busy: Collection[int] = ()) -> list[int]:
        present = np.array(wanted(clients, k))
        if k < len(present):
            lot = stream(self._seed, "selection", turn).permutation(len(present))
            scores = np.array([self._score(client) for client in present.tolist()])
            present = present[lot][np.argsort(-scores[lot], kind="stable")[:k]]
        found: list[int] = sorted(present.tolist())
        return found

    def heard(self, client: int, report: Report) -> None:
        utility = report.utility
        if utility is None:  # nothing came of it: half of what was hoped for, so that others get their turn
            known = self._utility[client]
            utility = known / 2 if np.isfinite(known) else 0.0
        else:
            self._staleness.setdefault(client, deque(maxlen=REMEMBERED)).append(report.staleness)
        self._utility[client] = utility

    def _score(self, client: int) -> float:
        stale = self._staleness.get(client)
        behind = sum(stale) / len(stale) if stale else 0.0
        return float(self._utility[client] / (1.0 + behind) ** STALE_POWER)
