"""Statistics of many updates at once: one pass an operation, over all clients together.

What makes it cheap: the standard deviation comes from sum and norm, zeros are counted through a comparison that writes
floats, and values that are not finite are counted only when a norm says that there are some.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedvitals.capture.tensors.sketch import Sketcher, unit_sketch_scale
from fedvitals.vocabulary import Layout


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
    layer_norms = stats[..., 0].astype(np.float64)
    norms = np.sqrt((layer_norms**2).sum(axis=1))
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
    nonzero = torch.ne(rows, 0, out=torch.empty_like(rows))
    columns = []
    for part, moved in zip(torch.split(rows, sizes, 1), torch.split(nonzero, sizes, 1), strict=True):
        if part.shape[1] == 0:
            columns.append(torch.zeros(5, len(rows), device=rows.device))
            continue
        columns.append(
            torch.stack((torch.linalg.vector_norm(part, dim=1), part.sum(1), part.amin(1), part.amax(1), moved.sum(1)))
        )
    if not columns:
        return np.zeros((len(rows), 0, 6), np.float32)
    raw = torch.stack(columns).cpu().numpy()  # [layers, 5, rows]: the one crossing
    return _finished(raw, np.maximum(np.array(sizes, np.float64), 1.0))


def _finished(raw: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    norm, total, low, high, moved = (raw[:, i].T.astype(np.float64) for i in range(5))
    with np.errstate(invalid="ignore", over="ignore"):
        mean = total / sizes
        # The norm is float32: below its rounding there is nothing to be had from the difference.
        variance = np.maximum(norm**2 / sizes - mean**2, 0.0)
        std = np.where(np.isfinite(norm), np.sqrt(variance), np.nan)
    zero_ratio = 1.0 - moved / sizes
    zero_ratio[:, sizes == 0] = 0.0
    return np.stack((norm, mean, std, low, high, zero_ratio), axis=-1).astype(np.float32)


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
    scale = np.where(np.isfinite(norms) & (norms > 0), 1.0 / np.maximum(norms, 1e-300), 0.0)
    sketches = sketcher.sketch(rows).cpu().numpy() * scale[:, None]
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
    whole = np.sqrt((lengths.astype(np.float64) ** 2).sum(axis=1, keepdims=True))
    share = lengths / np.maximum(whole, 1e-30)
    steps = sketches / (np.maximum(lengths, 1e-30)[..., None] * unit_sketch_scale())
    return {
        "unit_norms": share.astype(np.float16),
        "unit_sums": (sums / np.maximum(whole * np.sqrt(columns), 1e-30)).astype(np.float16),
        "unit_sketches": np.clip(np.rint(steps), -127, 127).astype(np.int8),
    }


def cosines_to_others(rows: Tensor, norms: np.ndarray) -> np.ndarray:
    """The cosine of each row to the mean of all the others; NaN for a row that is zero or alone.

    From one matrix-vector product: with S the sum, dot(u, S - u) = dot(u, S) - |u|^2, and likewise for the length.
    """
    total = rows.sum(0)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        dots = torch.mv(rows, total).cpu().numpy().astype(np.float64)
        squares = np.where(np.isfinite(norms), norms, 0.0) ** 2
        whole = float(torch.linalg.vector_norm(total)) ** 2
        others = np.sqrt(np.maximum(whole - 2 * dots + squares, 0.0))
        cosines = (dots - squares) / (others * np.sqrt(squares))
    alone = np.count_nonzero(squares) <= 1
    return np.where(alone | ~np.isfinite(cosines), np.nan, np.clip(cosines, -1, 1)).astype(np.float32)
