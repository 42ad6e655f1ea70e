"""A bounded stack of rows on the training's device: updates wait here to be summarised together."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedvitals.capture.tensors.layout import Flattener, Source
from fedvitals.capture.tensors.statistics import summarise
from fedvitals.vocabulary import Layout

MOST_ROWS = 64
MOST_BYTES = 32 * 2**20


class Rows:
    """Up to 64 rows, or as many as 32 MB hold; never fewer than one."""

    def __init__(self, flattener: Flattener, reference: Tensor) -> None:
        self.flattener = flattener
        self._reference = reference
        self.capacity = max(1, min(MOST_ROWS, MOST_BYTES // max(4 * flattener.size, 1)))
        self._rows: Tensor | None = None
        self.count = 0

    @torch.no_grad()
    def add_state(self, source: Source) -> None:
        """A client's model: kept as its difference from the reference."""
        row = self._next()
        self.flattener.into(source, row)
        row.sub_(self._reference)
        self.count += 1

    @torch.no_grad()
    def add_updates(self, updates: Tensor) -> None:
        for update in updates:
            self._next().copy_(update)
            self.count += 1

    @property
    def room(self) -> int:
        return self.capacity - self.count

    @property
    def full(self) -> bool:
        return self.room <= 0

    def take(self) -> Tensor:
        """The rows so far, as a view: summarise them before adding more."""
        count, self.count = self.count, 0
        return self._storage()[:count]

    def _next(self) -> Tensor:
        return self._storage()[self.count]

    def _storage(self) -> Tensor:
        if self._rows is None:
            self._rows = torch.empty(self.capacity, self.flattener.size, device=self._reference.device)
        return self._rows


@torch.no_grad()
def layer_norms(rows: Tensor, layout: Layout) -> Tensor:
    """The norm of each layer of each row, [rows, layers], left on the device."""
    parts = torch.split(rows, [layer.size for layer in layout.layers], 1)
    return torch.stack([torch.linalg.vector_norm(part, dim=1) for part in parts], 1)


def gradient_statistics(rows: Tensor, layout: Layout, *, full: bool) -> np.ndarray:
    """Of gradients as rows: [rows, layers, 1] norms, or [rows, layers, STATISTICS]."""
    if full:
        return summarise(rows, layout, cosines=False).stats
    return layer_norms(rows, layout).cpu().numpy()[..., None]


@torch.no_grad()
def distance(a: Tensor, b: Tensor) -> float:
    return float(torch.linalg.vector_norm(a - b))
