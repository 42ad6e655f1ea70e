"""A selection with a floor: some places belong to those who were asked least, whatever the others go by."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence

from fedvitals.randomness import chance
from fedvitals.train.selections.protocol import Report, Selection, wanted


class FlooredSelection:
    """`share` of the places, rounded up over the turns, go to who was asked least; of equals by lot."""

    def __init__(self, inner: Selection, share: float, seed: int) -> None:
        self._inner = inner
        self._share = share
        self._seed = seed
        self._asked: Counter[int] = Counter()
        self._owed = 0.0  # places that the floor has not had yet: a turn of one place has no half

    def choose(self, turn: int, clients: Sequence[int], k: int, busy: Collection[int] = ()) -> list[int]:
        present = wanted(clients, k)
        places = min(k, len(present))
        self._owed += self._share * places
        kept = min(math.floor(self._owed + 1e-9), places)
        self._owed -= kept
        least = sorted(present, key=lambda client: (self._asked[client], chance(self._seed, "floor", turn, client)))
        chosen = least[:kept]
        if kept < places:
            rest = [client for client in present if client not in set(chosen)]
            chosen += self._inner.choose(turn, rest, places - kept, [*busy, *chosen])
        self._asked.update(chosen)
        return sorted(chosen)

    def heard(self, client: int, report: Report) -> None:
        self._inner.heard(client, report)
