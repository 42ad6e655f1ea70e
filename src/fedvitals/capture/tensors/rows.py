"""Rows of flattened tensors on the training's device: joined, measured layer by layer, compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from fedvitals.capture.tensors import kernel
from fedvitals.capture.tensors.sources import Tensors, distinct, floats
from fedvitals.capture.tensors.statistics import summarise
from fedvitals.vocabulary import Layout

HALVES = (torch.float16, torch.bfloat16)


@torch.no_grad()
def layer_norms(rows: Tensor, layout: Layout) -> Tensor:
    """The norm of each layer of each row, [rows, layers], left on the device."""
    parts = torch.split(rows, [layer.size for layer in layout.layers], 1)
    if len(rows) == 1:  # one call for all layers of a single client
        return torch.stack(torch._foreach_norm(list(parts))).unsqueeze(0)
    return torch.stack([torch.linalg.vector_norm(part, dim=1) for part in parts], 1)


def gradient_statistics(rows: Tensor, layout: Layout, *, full: bool) -> np.ndarray:
    """Of gradients as rows: [rows, layers, 1] norms, or [rows, layers, STATISTICS]."""
    if full:
        return summarise(rows, layout).stats
    if kernel.takes([rows]):
        return kernel.norms(rows, layout)[..., None]
    return layer_norms(rows, layout).cpu().numpy()[..., None]


def measuring(row: Tensor, layout: Layout, *, full: bool) -> Callable[[], np.ndarray]:
    """What `gradient_statistics` says of this one row, which stays where it is, whenever it is asked."""
    if not full and kernel.takes([row]) and row.is_contiguous():
        return kernel.RowNorms(row, layout)
    return lambda: gradient_statistics(row.unsqueeze(0), layout, full=full)


def norms_of(tensors: Sequence[Tensor]) -> Tensor:
    """The norm of each, float32, left on their device."""
    found = kernel.lengths(tensors)
    return _norms_by_torch(tensors) if found is None else found


@torch.no_grad()
def _norms_by_torch(tensors: Sequence[Tensor]) -> Tensor:
    # A half overflows at 65,504, and a norm that is infinite for that alone would be called a bad step.
    values = [tensor if tensor.layout is torch.strided else _values(tensor) for tensor in tensors]
    wide = [tensor.float() if tensor.dtype in HALVES else tensor for tensor in values]
    device = wide[0].device
    return torch.stack([norm.to(device=device, dtype=torch.float32) for norm in torch._foreach_norm(wide)])


def _values(tensor: Tensor) -> Tensor:
    """Of a sparse tensor, each once: what was added to one place several times lies there in pieces."""
    return tensor.coalesce().values() if tensor.is_sparse else tensor.to_dense()


@torch.no_grad()
def nonfinite(source: Tensors) -> Tensor:
    """How many of a model's values are not finite, left on their device; a shared one counts once."""
    entries = floats(source)
    counts = [entries[index][1].isfinite().logical_not().sum() for index in distinct(entries)]
    return torch.stack([count.to(counts[0].device) for count in counts]).sum() if counts else torch.tensor(0)


@torch.no_grad()
def unchanged(row: Tensor, before: Tensor) -> bool:
    """Whether two rows are the same bit by bit; a NaN that stayed where it was is no change."""
    return torch.equal(row.view(torch.int32), before.view(torch.int32))


def distances(rows: Sequence[Tensor], start: Tensor, *, following: bool = False) -> list[float]:
    """How far each row is from `start`; or, `following`, from the row before it, the first one from `start`."""
    before = [start, *rows[:-1]] if following else [start] * len(rows)
    if all(kernel.takes_row(row) for row in (start, *rows)):
        return kernel.distances(rows, before)
    return _distances_by_torch(rows, before)


@torch.no_grad()
def _distances_by_torch(rows: Sequence[Tensor], before: Sequence[Tensor]) -> list[float]:
    lengths = [torch.linalg.vector_norm(row - other) for row, other in zip(rows, before, strict=True)]
    return [float(length) for length in torch.stack(lengths).cpu()]
