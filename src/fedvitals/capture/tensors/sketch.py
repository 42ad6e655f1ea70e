"""Count sketches of updates (Charikar, Chen, Farach-Colton 2002; as a projection: Weinberger et al. 2009).

Each value is added, with a random sign, to one of its layer's buckets; buckets and signs are a fixed function of the
layout, the same for all clients, rounds and machines. The dot product of two sketches estimates the dot product of the
updates without bias. Here sketches are of updates divided by their norm, so the estimate is the cosine itself, with a
standard error of about 1 / sqrt(buckets).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedvitals.randomness import stream
from fedvitals.vocabulary import Layout, Sketch

BUCKETS = 256
LEAST_A_LAYER = 8
UNIT_BUCKETS = 8
UNIT_RANGE = 2.0  # a bucket of a unit vector stays well inside this
SEED = 20_160_217  # of the sketch itself: never the job's, so that runs can be compared


def allot_buckets(sizes: Sequence[int], total: int = BUCKETS) -> tuple[int, ...]:
    """Buckets of each layer: at least 8 (or its size), the rest by the square root of what is left of it.

    A layer with no more values than buckets is kept whole. Beyond 32 layers the total grows, to keep 8 for each.
    """
    allotted = [min(size, LEAST_A_LAYER) for size in sizes]
    for _ in range(8):
        left = total - sum(allotted)
        wants = [math.sqrt(size - given) if size > given else 0.0 for size, given in zip(sizes, allotted, strict=True)]
        demand = sum(wants)
        if left <= 0 or not demand:
            break
        extra = [math.floor(left * want / demand) for want in wants]
        if not any(extra):
            extra[wants.index(max(wants))] = left
        allotted = [min(size, given + more) for size, given, more in zip(sizes, allotted, extra, strict=True)]
    return tuple(allotted)


class Sketcher:
    """The buckets and signs of one layout, ready for use on a device."""

    def __init__(self, layout: Layout, device: torch.device) -> None:
        order, starts, signs = _assign(layout)
        self._order = torch.from_numpy(order).to(device)
        self._starts = torch.from_numpy(starts).to(device)
        self._signs = torch.from_numpy(signs).to(device)
        self.buckets = len(starts)
        self._units = _unit_projection(layout, device)

    def sketch(self, rows: Tensor) -> Tensor:
        """[clients, size] -> [clients, buckets]. Transposed, so that one pass adds all clients' values at once."""
        columns = rows.t().contiguous()
        bags = torch.nn.functional.embedding_bag(
            self._order, columns, self._starts, mode="sum", per_sample_weights=self._signs
        )
        return bags.t().contiguous()

    def units(self, matrix: Tensor) -> tuple[Tensor, Tensor]:
        """[clients, units, columns] -> sums [clients, units] and sketches [clients, units, 8]."""
        clients, units, columns = matrix.shape
        projected = torch.mm(matrix.reshape(clients * units, columns), self._units).view(clients, units, -1)
        return projected[..., 0], projected[..., 1:]


def _assign(layout: Layout) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    order, starts, signs, offset, filled = [], [], [], 0, 0
    for index, (layer, buckets) in enumerate(zip(layout.layers, layout.sketch_buckets, strict=True)):
        random = stream(SEED, "sketch", index, layer.size)
        whole = buckets == layer.size  # kept as it is, so that a bias can be read off
        places = np.arange(layer.size) if whole else random.permutation(layer.size)
        order.append(places + offset)
        signs.append(np.ones(layer.size, np.float32) if whole else _signs(random, layer.size))
        # Even buckets rather than hashed ones: collisions, and so the error, are the fewest possible.
        starts.append(filled + (np.arange(buckets) * layer.size) // max(buckets, 1))
        offset += layer.size
        filled += layer.size
    return _joined(order, np.int64), _joined(starts, np.int64), _joined(signs, np.float32)


def _signs(random: np.random.Generator, size: int) -> np.ndarray:
    return random.integers(0, 2, size).astype(np.float32) * 2 - 1


def _joined(parts: list[np.ndarray], dtype: type) -> np.ndarray:
    return np.concatenate(parts).astype(dtype) if parts else np.empty(0, dtype)


def _unit_projection(layout: Layout, device: torch.device) -> Tensor:
    if layout.unit_layer is None:
        return torch.empty(0, 1 + UNIT_BUCKETS, device=device)
    columns = layout.layers[layout.unit_layer].shape[1]
    random = stream(SEED, "unit sketch", columns)
    matrix = np.zeros((columns, 1 + UNIT_BUCKETS), np.float32)
    matrix[:, 0] = 1.0
    places = random.permutation(columns) % UNIT_BUCKETS
    matrix[np.arange(columns), 1 + places] = _signs(random, columns)
    return torch.from_numpy(matrix).to(device)


def unit_sketch_scale() -> float:
    """What an int8 step of a unit sketch is worth, as a share of the row's norm."""
    return UNIT_RANGE / 127


def angle(a: Sketch, b: Sketch) -> tuple[float, float]:
    """The cosine between two updates, estimated from their sketches, and its standard error."""
    left, right = a.values.astype(np.float64), b.values.astype(np.float64)
    cosine = float(left @ right)
    lengths = float(left @ left), float(right @ right)
    error = math.sqrt((lengths[0] * lengths[1] + cosine**2) / max(len(left), 1))
    return max(-1.0, min(1.0, cosine)), error
