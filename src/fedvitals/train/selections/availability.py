"""A selection: who is seldom there is asked while it is.

Abdelmoniem et al., REFL: Resource-Efficient Federated Learning (EuroSys 2023), 4.1: where clients come and go, a lot
among those present teaches the model the rows of those who are always there. The share of looks at which a client was
there is counted here, not foretold.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from fedvitals.randomness import stream
from fedvitals.train.selections.protocol import Report, wanted

PRIOR = 1.0  # looks at which a client is taken to have been there, before it was looked for


class AvailableSelection:
    """The least often there first; of equals by lot."""

    def __init__(self, seed: int, clients: int) -> None:
        self._seed = seed
        self._looks = np.full(clients, PRIOR)
        self._there = np.full(clients, PRIOR)
        self._asked = np.zeros(clients)

    def choose(self, turn: int, clients: Sequence[int], k: int, busy: Collection[int] = ()) -> list[int]:
        present = np.array(wanted(clients, k))
        self._look(present, busy)
        if k >= len(present):
            chosen = present
        else:
            lot = stream(self._seed, "selection", turn).permutation(len(present))
            share = self._there[present] / self._looks[present]
            # Asked often counts like being there often: one rare client must not be asked each time it shows.
            due = share * (1.0 + self._asked[present])
            chosen = present[lot][np.argsort(due[lot], kind="stable")[:k]]
        self._asked[chosen] += 1
        found: list[int] = sorted(chosen.tolist())
        return found

    def heard(self, client: int, report: Report) -> None:
        """Being there is what counts."""

    def _look(self, present: np.ndarray, busy: Collection[int]) -> None:
        looked = np.ones(len(self._looks), bool)
        looked[list(busy)] = False  # at work: neither there nor away
        self._looks += looked
        self._there[present] += 1
