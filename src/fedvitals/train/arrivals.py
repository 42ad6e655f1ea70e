"""What came of a round's clients, until it is known whether it came in time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from fedvitals.train.reckoning import Reckoned
from fedvitals.train.trained import Failed, Trained, part


@dataclass(frozen=True, slots=True, eq=False)
class Arrival:
    """Clients whose updates arrived."""

    trained: Trained
    updates: Tensor  # as they are after the wire
    sizes: Sequence[int]  # bytes up
    down: Sequence[int]  # bytes down
    reckoned: Sequence[Reckoned]  # on the virtual clock; empty on the real one

    @property
    def names(self) -> list[str]:
        return [work.name for work in self.trained.works]

    def taken(self, rows: Sequence[int]) -> Arrival:
        """Some of them."""
        if len(rows) == len(self.sizes):
            return self
        return Arrival(
            part(self.trained, rows),
            self.updates[list(rows)],
            [self.sizes[row] for row in rows],
            [self.down[row] for row in rows],
            [self.reckoned[row] for row in rows] if self.reckoned else [],
        )

    def parted(self, apart: Collection[str]) -> tuple[Arrival | None, Arrival | None]:
        """Those that are not in `apart`, and those that are; None for nobody."""
        names = self.names
        rest = [row for row, name in enumerate(names) if name not in apart]
        rows = [row for row, name in enumerate(names) if name in apart]
        return (self.taken(rest) if rest else None), (self.taken(rows) if rows else None)


class Row(NamedTuple):
    """Where one client's update lies among those that arrived with it, and how many samples it is of."""

    updates: Tensor
    place: int
    samples: float


def stacked(rows: list[Row]) -> Tensor:
    """The updates in this order, copied: whoever recorded what arrived may still look at it. The list is emptied as it
    goes, and what was copied is freed with it: of clients trained one by one, a round is never there twice."""
    size = rows[0].updates.shape[1]
    if len(rows) == 1:
        return rows[0].updates[rows[0].place].unsqueeze(0)
    found, start = torch.empty(len(rows), size), 0
    rows.reverse()
    for _, together in groupby([id(row.updates) for row in reversed(rows)]):
        count = len(list(together))
        some = [rows.pop() for _ in range(count)]
        found[start : start + count] = some[0].updates[[row.place for row in some]]
        start += count
        del some
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Lost:
    """A client of whom nothing arrived."""

    failed: Failed
    reckoned: Reckoned
    down: int  # bytes

    def given_up_at(self, seconds: float) -> Lost:
        """The same, where a silent client is waited for no longer than the others."""
        if self.reckoned.phases_s.get("wait", 0.0) <= seconds:
            return self
        message = f"no answer by the end of the round, after {seconds:.3g} s"
        return Lost(replace(self.failed, message=message), Reckoned({"wait": seconds}), self.down)
