"""Statistics of many updates at once: by the compiled kernel, or by torch where there is none or on another device.

By torch it is one pass an operation, over all clients together. What makes that cheap: the standard deviation comes
from sum and norm, zeros are counted through a comparison that writes floats, and values that are not finite are counted
only when a norm says that there are some.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedvitals.capture.tensors import kernel
from fedvitals.capture.tensors.sketch import Sketcher, unit_sketch_scale
from fedvitals.vocabulary import Layout

TINY = 1e-30
OUTWEIGHS = 1e3  # a row whose square is so much the others' drowns them in a float32 sum
NOTHING = (0.0, 0.0, 0.0, 0.0, 1.0)  # a layer without values has no zeros either


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


def summarise(
    rows: Tensor | Sequence[Tensor],
    layout: Layout,
    sketcher: Sketcher | None = None,
    *,
    groups: Sequence[int] | None = None,
) -> Summary:
    """Everything recorded of `rows` [rows, size], in one piece or in several, which are not changed.

    `groups` are the sizes of cohorts that follow each other in the rows: with them, each row is compared to the others
    of its cohort.
    """
    parts = [rows] if isinstance(rows, Tensor) else rows
    if kernel.takes(parts):
        return named(kernel.find_out(parts, layout, sketcher, groups))
    return _by_torch(joined(parts), layout, sketcher, groups)


def named(found: kernel.Found) -> Summary:
    """What the compiled kernel found out."""
    return Summary(**{"cosines": None} | found.fields())


def joined(parts: Sequence[Tensor]) -> Tensor:
    """One matrix of all rows."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


@torch.no_grad()
def _by_torch(rows: Tensor, layout: Layout, sketcher: Sketcher | None, groups: Sequence[int] | None) -> Summary:
    stats = _statistics(rows, layout)
    norms = np.sqrt(np.square(stats[..., 0], dtype=np.float64).sum(axis=1))
    clean, nonfinite = rows, None
    if not np.isfinite(norms).all():
        nonfinite = _count_nonfinite(rows, layout)
        clean = _without_bad_rows(rows, norms)
    extra = _sketched(clean, layout, sketcher, norms) if sketcher is not None and len(rows) else {}
    return Summary(
        stats=stats,
        norms=norms,
        nonfinite=nonfinite,
        cosines=None if groups is None else _cosines(clean, norms, groups),
        **extra,
    )


def _statistics(rows: Tensor, layout: Layout) -> np.ndarray:
    sizes = [layer.size for layer in layout.layers]
    raw = torch.empty(5, len(sizes), len(rows), device=rows.device, dtype=rows.dtype)
    nonzero = torch.ne(rows, 0, out=torch.empty_like(rows))
    parts = zip(torch.split(rows, sizes, 1), torch.split(nonzero, sizes, 1), strict=True)
    for index, (part, moved) in enumerate(parts):
        if sizes[index] == 0:
            raw[:, index] = raw.new_tensor(NOTHING).unsqueeze(1)
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


def _without_bad_rows(rows: Tensor, norms: np.ndarray) -> Tensor:
    """A row with a NaN, or with a layer whose norm overflows float32, points nowhere: it is blank in the sketches, and
    no part of anyone's cohort."""
    bad = torch.from_numpy(~np.isfinite(norms)).to(rows.device)
    return torch.where(bad.unsqueeze(1), torch.zeros((), device=rows.device, dtype=rows.dtype), rows)


def _sketched(rows: Tensor, layout: Layout, sketcher: Sketcher, norms: np.ndarray) -> dict[str, np.ndarray]:
    with np.errstate(divide="ignore", over="ignore"):
        scale = (1.0 / norms).astype(np.float32)
    scale[~np.isfinite(scale)] = 0.0
    shares = torch.from_numpy(scale).to(rows.device).unsqueeze(1)
    result = {"sketches": sketcher.sketch(rows).mul_(shares).half().cpu().numpy()}
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
    whole = torch.linalg.vector_norm(lengths, dim=1, keepdim=True).clamp_(min=TINY)
    sums, sketches = sketcher.units(matrix)
    steps = sketches / lengths.clamp(min=TINY).mul_(unit_sketch_scale()).unsqueeze(2)
    return {
        "unit_norms": (lengths / whole).half().cpu().numpy(),
        "unit_sums": (sums / (whole * math.sqrt(columns))).half().cpu().numpy(),
        "unit_sketches": steps.round_().clamp_(-127, 127).to(torch.int8).cpu().numpy(),
    }


def _cosines(rows: Tensor, norms: np.ndarray, groups: Sequence[int]) -> np.ndarray:
    found, offset = [], 0
    for size in groups:
        found.append(cosines_to_others(rows[offset : offset + size], norms[offset : offset + size]))
        offset += size
    return found[0] if len(found) == 1 else np.concatenate(found)


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
    for row in np.flatnonzero(squares > OUTWEIGHS * (squares.sum() - squares)):  # one at most
        cosines[row] = _cosine_to_rest(rows, int(row))
    # Zero, or so long that its square is infinite: it has no direction that could be told.
    cosines[~np.isfinite(cosines)] = np.nan
    clipped: np.ndarray = np.clip(cosines, -1, 1).astype(np.float32)
    return clipped


def _cosine_to_rest(rows: Tensor, row: int) -> float:
    """The same by its definition, for a row beside which the others vanish."""
    others = torch.cat((rows[:row], rows[row + 1 :])).sum(0)
    own = rows[row] / torch.linalg.vector_norm(rows[row])
    return float(torch.dot(own, others) / torch.linalg.vector_norm(others))
