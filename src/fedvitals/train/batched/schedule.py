"""Which rows every client of a batch needs at every step: one table, padded where a client has fewer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedvitals.faults.work import LocalWork
from fedvitals.train.orders import batch_orders


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One step: the first `active` clients take it, on `rows` [active, width] of their own rows."""

    active: int
    rows: Tensor
    share: Tensor | float  # a row's part in its batch; one number when all batches are full and equal


class Schedule:
    """The steps of a batch of clients that are sorted by their number of steps, most first."""

    def __init__(self, seed: int, works: Sequence[LocalWork], rows: Sequence[int], epochs: int, batch: int) -> None:
        self.usable = np.array([_usable(w, n, batch) for w, n in zip(works, rows, strict=True)])
        self.a_epoch = -(-self.usable // batch)
        self.steps = self.a_epoch * epochs
        self._batch = batch
        orders = batch_orders(seed, works, rows, epochs)
        total = int(self.steps.max(initial=0))
        self._table = np.full((total, len(works), batch), -1, np.int64)
        # Clients with equally many batches are laid out together; there are few such groups.
        for many in np.unique(self.a_epoch):
            group = np.flatnonzero(self.a_epoch == many)
            laid = _padded(orders[group], self.usable[group], int(many) * batch)
            self._table[: many * epochs, group] = laid.reshape(len(group), epochs * many, batch).transpose(1, 0, 2)
        self._counts = (self._table >= 0).sum(axis=2)

    def __len__(self) -> int:
        return len(self._table)

    def step(self, number: int) -> Step:
        active = int((self.steps > number).sum())
        counts = self._counts[number, :active]
        width = int(counts.max())
        rows = self._table[number, :active, :width]
        if (counts == width).all():
            return Step(active, torch.from_numpy(rows), 1.0 / width)
        share = (rows >= 0) / counts[:, None]
        return Step(active, torch.from_numpy(np.maximum(rows, 0)), torch.from_numpy(share.astype(np.float32)))


def most_steps_first(works: Sequence[LocalWork], rows: Sequence[int], batch: int) -> list[int]:
    """The order in which clients are stacked, so that those at work are always the first ones."""
    steps = [-(-_usable(work, count, batch) // batch) for work, count in zip(works, rows, strict=True)]
    return sorted(range(len(works)), key=lambda index: (-steps[index], index))


def _usable(work: LocalWork, rows: int, batch: int) -> int:
    return rows - rows % batch if work.drop_last and rows > batch else rows


def _padded(orders: np.ndarray, usable: np.ndarray, width: int) -> np.ndarray:
    """[clients, epochs, width]: each order cut to its usable rows and filled up with -1."""
    laid = np.full((orders.shape[0], orders.shape[1], width), -1, np.int64)
    shared = min(width, orders.shape[2])
    laid[..., :shared] = orders[..., :shared]
    laid[np.broadcast_to(np.arange(width) >= usable[:, None, None], laid.shape)] = -1
    return laid
