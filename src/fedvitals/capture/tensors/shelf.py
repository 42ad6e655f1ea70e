"""Memory for what the recorder holds for longer than a moment: rows that wait, what was found out of them, models.

Where these lay among the training's own tensors, it would get other memory round after round: cold, in pieces, and
sometimes not there yet, at some microseconds a page. Here they lie in few pieces, each used again once nobody holds
anything in it.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from torch import Tensor

PIECE_BYTES = 1 << 20
MOST_PIECES = 24
_ALIGNED = 64


class Shelf:
    """Who uses it sees to it that one thread at a time does; whoever is done with what lies here just lets go of it."""

    def __init__(self) -> None:
        self._pieces: list[np.ndarray] = []
        self._places: list[int] = []  # where each begins
        self._piece: np.ndarray = np.empty(0, np.uint8)
        self._used = 0

    @property
    def size_bytes(self) -> int:
        """Whether or not anything lies here."""
        return len(self._pieces) * PIECE_BYTES

    def holds(self, rows: Tensor) -> bool:
        """Whether these lie here."""
        place = rows.data_ptr()
        return any(begin <= place < begin + PIECE_BYTES for begin in self._places)

    def row(self, rows: Tensor) -> Tensor:
        """A copy of the rows here where there is room; else the rows."""
        if not rows.is_cpu or rows.dtype is not torch.float32 or not rows.numel():
            return rows
        place = self.empty_row(rows.numel())
        return rows if place is None else place.view(rows.shape).copy_(rows.detach())

    def empty_row(self, size: int) -> Tensor | None:
        """Room for so many values; None where there is none."""
        room = self.room(4 * size)
        return None if room is None else torch.from_numpy(room.view(np.float32))

    def room(self, size: int) -> np.ndarray | None:
        """So many bytes that nobody else uses; None where there are none."""
        if self._used + size > len(self._piece):
            piece = self._idle() if size <= PIECE_BYTES else None
            if piece is None:
                return None
            self._piece, self._used = piece, 0
        begin = self._used
        self._used += -(-size // _ALIGNED) * _ALIGNED
        return self._piece[begin : begin + size]

    def _idle(self) -> np.ndarray | None:
        self._piece = np.empty(0, np.uint8)
        for piece in self._pieces:
            if sys.getrefcount(piece) == _REFERENCES_OF_IDLE:
                return piece
        if len(self._pieces) == MOST_PIECES:
            return None
        self._pieces.append(np.empty(PIECE_BYTES, np.uint8))
        self._places.append(self._pieces[-1].ctypes.data)
        return self._pieces[-1]


def _references_of_idle() -> int:
    """References to a piece in which nothing lies, asked for as `Shelf._idle` does: how many that are is a matter of
    the version of Python (3.14 borrows some that 3.11 takes)."""
    pieces = [np.empty(1, np.uint8)]
    for piece in pieces:
        return sys.getrefcount(piece)
    raise AssertionError("there is one")


_REFERENCES_OF_IDLE = _references_of_idle()
