"""Statistics of many updates at once: one pass an operation, over all clients together.

What makes it cheap: the standard deviation comes from sum and norm, zeros are counted through a comparison that writes
floats, and values that are not finite are counted only when a norm says that there are some.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedvitals.capture.tensors.sketch import Sketcher, unit_sketch_scale
from fedvitals.vocabulary import Layout

TINY = np.float32(1e-30)
EMPTY = torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0])  # a layer without values has no zeros either


@dataclass(frozen=True, slots=True, eq=False)
class Summary:
    """What is known of a stack of rows, on the host."""

    stats: np.ndarray  # [rows, layers, STATISTICS] float32
    norms: np.ndarray  # [rows] float64: of the whole row
    nonfinite: np.ndarray | None = None  # [rows, layers] uint32, None when every value is finite
    cosines: np.ndarray | None = None  # [rows] float32: to the mean of the other rows, NaN where there is none
    sketches: np.ndarray | None = None
    unit_norms: np.ndarray | None = None
    unit_sums: np.ndarray | None = None
    unit_sketches: np.ndarray | None = None


@torch.no_grad()
def summarise(rows: Tensor, layout: Layout, sketcher: Sketcher | None = None, *, cosines: bool = True) -> Summary:
    """Everything recorded of `rows` [rows, size]; the rows are not changed."""
    stats = _statistics(rows, layout)
    norms = np.sqrt(np.square(stats[..., 0], dtype=np.float64).sum(axis=1))
    clean, nonfinite = rows, None
    if not np.isfinite(norms).all():
        nonfinite = _count_nonfinite(rows, layout)
        clean = _without_bad_rows(rows, nonfinite)
    extra = _sketched(clean, layout, sketcher, norms) if sketcher is not None and len(rows) else {}
    return Summary(
        stats=stats,
        norms=norms,
        nonfinite=nonfinite,
        cosines=cosines_to_others(clean, norms) if cosines else None,
        **extra,
    )


def _statistics(rows: Tensor, layout: Layout) -> np.ndarray:
    sizes = [layer.size for layer in layout.layers]
    raw = torch.empty(5, len(sizes), len(rows), device=rows.device)
    nonzero = torch.ne(rows, 0, out=torch.empty_like(rows))
    parts = zip(torch.split(rows, sizes, 1), torch.split(nonzero, sizes, 1), strict=True)
    for index, (part, moved) in enumerate(parts):
        if sizes[index] == 0:
            raw[:, index] = EMPTY.unsqueeze(1)
            continue
        torch.linalg.vector_norm(part, dim=1, out=raw[0, index])
        torch.sum(part, 1, out=raw[1, index])
        torch.amin(part, 1, out=raw[2, index])
        torch.amax(part, 1, out=raw[3, index])
        torch.sum(moved, 1, out=raw[4, index])
    return _finished(raw.cpu().numpy(), np.maximum(sizes, 1).astype(np.float64))  # the one crossing


def _finished(raw: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    norm, total, low, high, moved = raw.transpose(0, 2, 1)  # each [rows, layers]
    stats = np.empty((*norm.shape, 6), np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        mean = total / sizes  # float64, as are the next lines
        # The norm is float32: below its rounding there is nothing to be had from the difference.
        variance = np.square(norm, dtype=np.float64) / sizes - mean * mean
        np.sqrt(np.maximum(variance, 0.0, out=variance), out=variance)
        stats[..., 0], stats[..., 1], stats[..., 2] = norm, mean, variance
        stats[..., 3], stats[..., 4] = low, high
        stats[..., 5] = 1.0 - moved / sizes
    return stats


def _count_nonfinite(rows: Tensor, layout: Layout) -> np.ndarray:
    bad = ~torch.isfinite(rows)
    counts = [part.sum(1) for part in torch.split(bad, [layer.size for layer in layout.layers], 1)]
    return torch.stack(counts, 1).cpu().numpy().astype(np.uint32)


def _without_bad_rows(rows: Tensor, nonfinite: np.ndarray) -> Tensor:
    """A row with a NaN points nowhere: it is blank in the sketches, and no part of anyone's cohort.

    So is one whose norm overflows float32, which `nonfinite` does not show.
    """
    norms = torch.linalg.vector_norm(rows, dim=1)
    bad = torch.from_numpy(nonfinite.sum(axis=1) > 0).to(rows.device) | ~torch.isfinite(norms)
    return torch.where(bad.unsqueeze(1), torch.zeros((), device=rows.device), rows)


def _sketched(rows: Tensor, layout: Layout, sketcher: Sketcher, norms: np.ndarray) -> dict[str, np.ndarray]:
    with np.errstate(divide="ignore"):
        scale = 1.0 / norms
    scale[~np.isfinite(scale)] = 0.0
    sketches = sketcher.sketch(rows).cpu().numpy()
    sketches *= scale[:, None].astype(np.float32)
    result = {"sketches": sketches.astype(np.float16)}
    if layout.unit_layer is not None:
        result |= _unit_rows(rows, layout, sketcher)
    return result


def _unit_rows(rows: Tensor, layout: Layout, sketcher: Sketcher) -> dict[str, np.ndarray]:
    index = layout.unit_layer
    assert index is not None
    start = sum(layer.size for layer in layout.layers[:index])
    columns = layout.layers[index].shape[1]
    matrix = rows[:, start : start + layout.units * columns].reshape(len(rows), layout.units, columns)
    lengths = torch.linalg.vector_norm(matrix, dim=2)
    sums, sketches = sketcher.units(matrix)
    return _scaled_units(lengths.cpu().numpy(), sums.cpu().numpy(), sketches.cpu().numpy(), columns)


def _scaled_units(lengths: np.ndarray, sums: np.ndarray, sketches: np.ndarray, columns: int) -> dict[str, np.ndarray]:
    whole = np.sqrt(np.square(lengths).sum(axis=1, keepdims=True))
    np.maximum(whole, TINY, out=whole)
    steps = sketches / (np.maximum(lengths, TINY) * unit_sketch_scale())[..., None]
    np.rint(np.clip(steps, -127, 127, out=steps), out=steps)
    return {
        "unit_norms": (lengths / whole).astype(np.float16),
        "unit_sums": (sums / (whole * math.sqrt(columns))).astype(np.float16),
        "unit_sketches": steps.astype(np.int8),
    }


def cosines_to_others(rows: Tensor, norms: np.ndarray) -> np.ndarray:
    """The cosine of each row to the mean of all the others; NaN for a row that is zero or alone.

    From one matrix-vector product: with S the sum, dot(u, S - u) = dot(u, S) - |u|^2, and likewise for the length.
    """
    total = rows.sum(0)
    together = torch.cat((torch.mv(rows, total), torch.dot(total, total).unsqueeze(0))).cpu().numpy()
    dots, whole = together[:-1].astype(np.float64), float(together[-1])
    squares = np.where(np.isfinite(norms), norms * norms, 0.0)
    if np.count_nonzero(squares) <= 1:
        return np.full(len(rows), np.nan, np.float32)
    with np.errstate(invalid="ignore", divide="ignore"):
        cosines = (dots - squares) / np.sqrt(np.maximum(whole - 2 * dots + squares, 0.0) * squares)
    # Zero, or so long that its square is infinite: it has no direction that could be told.
    cosines[~np.isfinite(cosines)] = np.nan
    clipped: np.ndarray = np.clip(cosines, -1, 1).astype(np.float32)
    return clipped
