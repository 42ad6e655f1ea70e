"""Which rows every client of a batch needs at every step: tables made once a round, padded where a client has fewer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedvitals.faults.work import LocalWork
from fedvitals.train.orders import batch_orders, rows_reached


class Step(NamedTuple):
    """One step: the first `active` clients take it, on `rows` [active, width]."""

    active: int
    rows: Tensor  # numbers of the federation's rows
    own: Tensor  # the same as places in the client's own list
    share: Tensor | float  # a row's part in its batch; one number when all batches are full and equal

    def parts(self, width: int) -> Iterator[Step]:
        """The same rows, at most so many at once. Shares stay what they are, so losses and gradients add up."""
        for start in range(0, self.rows.shape[1], width):
            some = slice(start, start + width)
            share = self.share[:, some] if isinstance(self.share, Tensor) else self.share
            yield Step(self.active, self.rows[:, some], self.own[:, some], share)


class Schedule:
    """The steps of a batch of clients that are sorted by their number of steps, most first.

    `rows` are the federation's row numbers of each client, None for one that brings rows of its own.
    """

    def __init__(
        self,
        seed: int,
        works: Sequence[LocalWork],
        rows: Sequence[np.ndarray | None],
        counts: Sequence[int],
        epochs: int,
        batch: int,
    ) -> None:
        usable = np.array([rows_reached(w, n, batch) for w, n in zip(works, counts, strict=True)])
        a_epoch = -(-usable // batch)
        self.steps = a_epoch * epochs
        orders = batch_orders(seed, works, counts, epochs)
        table = np.full((int(self.steps.max(initial=0)), len(works), batch), -1, np.int64)
        # Clients with equally many batches are laid out together; there are few such groups.
        for many in np.unique(a_epoch):
            group = np.flatnonzero(a_epoch == many)
            laid = _padded(orders[group], usable[group], int(many) * batch)
            table[: many * epochs, group] = laid.reshape(len(group), epochs * many, batch).transpose(1, 0, 2)
        filled = (table >= 0).sum(axis=2)  # [steps, clients]
        self._active = (filled > 0).sum(axis=1).tolist()
        self._width = filled.max(axis=1, initial=0).tolist()
        self._even = [bool((some[:n] == w).all()) for some, n, w in zip(filled, self._active, self._width, strict=True)]
        self._filled = filled
        np.maximum(table, 0, out=table)
        self._own = torch.from_numpy(table)
        self._rows = torch.from_numpy(_row_numbers(table, rows, max(counts, default=1)))

    def __len__(self) -> int:
        return len(self._active)

    def step(self, number: int) -> Step:
        active, width = self._active[number], self._width[number]
        rows = self._rows[number, :active, :width]
        own = self._own[number, :active, :width]
        if self._even[number]:
            return Step(active, rows, own, 1.0 / width)
        filled = self._filled[number, :active, None]
        share = (np.arange(width) < filled) / filled.astype(np.float32)
        return Step(active, rows, own, torch.from_numpy(share.astype(np.float32)))


def most_steps_first(works: Sequence[LocalWork], counts: Sequence[int], batch: int) -> list[int]:
    """The order in which clients are stacked, so that those at work are always the first ones."""
    steps = [-(-rows_reached(work, count, batch) // batch) for work, count in zip(works, counts, strict=True)]
    return sorted(range(len(works)), key=lambda index: (-steps[index], index))


def _padded(orders: np.ndarray, usable: np.ndarray, width: int) -> np.ndarray:
    """[clients, epochs, width]: each order cut to its usable rows and filled up with -1."""
    laid = np.full((orders.shape[0], orders.shape[1], width), -1, np.int64)
    shared = min(width, orders.shape[2])
    laid[..., :shared] = orders[..., :shared]
    laid[np.broadcast_to(np.arange(width) >= usable[:, None, None], laid.shape)] = -1
    return laid


def _row_numbers(table: np.ndarray, rows: Sequence[np.ndarray | None], most: int) -> np.ndarray:
    """The federation's numbers for places in the clients' own lists; row 0 stands in for rows it does not have."""
    numbers = np.zeros((len(rows), most), np.int64)
    for client, mine in enumerate(rows):
        if mine is not None:
            numbers[client, : len(mine)] = mine
    found: np.ndarray = numbers[np.arange(len(rows))[None, :, None], table]
    return found
