"""What a selection does: who is there comes in, who is asked goes out, and what came of them is told afterwards."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from fedvitals.errors import JobError


class Report(NamedTuple):
    """What came of one participation, as the server saw it."""

    rows: int
    duration_s: float  # from being asked to being done, or given up
    loss: float | None = None  # root of its mean squared loss on the received model; None: nothing came of it
    staleness: int = 0
    late: bool = False  # it came, but nobody waited for it any more

    @property
    def utility(self) -> float | None:
        """What its rows have to teach: rows times their root mean squared loss (Lai et al., Oort, OSDI 2021, 4.2)."""
        return self.rows * self.loss if self.loss is not None and math.isfinite(self.loss) else None


@runtime_checkable
class Selection(Protocol):
    """One way to choose. It knows only what it was told; a function of its seed and of that."""

    def choose(self, turn: int, clients: Sequence[int], k: int, busy: Collection[int] = ()) -> list[int]:
        """`k` of these clients, sorted; all of them when there are no more than that.

        `clients` are who can be asked now. `busy` are who cannot because they are at work; all others are away.
        """

    def heard(self, client: int, report: Report) -> None:
        """A participation is over."""


def wanted(clients: Sequence[int], k: int) -> list[int]:
    """Who is there, sorted; JobError where nobody is asked for."""
    if k < 1:
        raise JobError(f"train.clients_per_round = {k}: a round needs at least one client")
    return sorted(clients)
