"""Count sketches of updates (Charikar, Chen, Farach-Colton 2002; as a projection: Weinberger et al. 2009).

Each value is added, with a random sign, to one of its layer's buckets; buckets and signs are a fixed function of the
layout, the same for all clients, rounds and machines. The dot product of two sketches estimates the dot product of the
updates without bias. Here sketches are of updates divided by their norm, so the estimate is the cosine itself, with a
standard error of about 1 / sqrt(buckets).

The i-th value of a layer goes to bucket i modulo the layer's number of buckets, which shares no factor with the length
of a row: so each row and each column of a matrix is spread evenly over all buckets, better than a random hash would,
and a sketch is a product with the signs and a sum over an axis, three times cheaper than scattering.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedvitals.randomness import stream
from fedvitals.vocabulary import Layer, Layout, Sketch

BUCKETS = 256
LEAST_A_LAYER = 8
SMALL = 16  # values: such a layer is kept whole, for the bias behind the last matrix tells of each class
UNIT_BUCKETS = 8
UNIT_RANGE = 2.0  # a bucket of a unit vector stays well inside this
SEED = 20_160_217  # of the sketch itself: never the job's, so that runs can be compared


def allot_buckets(layers: Sequence[Layer], total: int = BUCKETS) -> tuple[int, ...]:
    """Buckets of each layer: at least 8, or all of up to 16 values, the rest by the square root of what is left of it.

    A layer with no more values than buckets is kept whole. Beyond some 16 to 32 layers the total grows, to keep that.
    """
    sizes = [layer.size for layer in layers]
    allotted = [size if size <= SMALL else LEAST_A_LAYER for size in sizes]
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
    return tuple(_coprime(layer, buckets) for layer, buckets in zip(layers, allotted, strict=True))


def _coprime(layer: Layer, buckets: int) -> int:
    """The nearest number, smaller if there is one from 8 on, that shares no factor with the length of a row."""
    length = math.prod(layer.shape[1:]) if len(layer.shape) > 1 else 1
    if buckets == layer.size:
        return buckets
    candidates = chain(range(buckets, LEAST_A_LAYER - 1, -1), range(buckets + 1, layer.size))
    return next((number for number in candidates if math.gcd(number, length) == 1), buckets)


class Sketcher:
    """The buckets and signs of one layout, ready for use on a device."""

    def __init__(self, layout: Layout, device: torch.device) -> None:
        self.buckets = sum(layout.sketch_buckets)
        self.signs = _all_signs(layout).to(device)  # [size]
        self.unit_projection = _unit_projection(layout, device)
        self.plan: Any = None  # the compiled kernel's, made by it when it is first asked
        self._layers = list(_folded(layout, self.signs))

    def sketch(self, rows: Tensor) -> Tensor:
        """[clients, size] -> [clients, buckets]."""
        parts = [_bucketed(rows[:, part], signs, buckets) for part, signs, buckets in self._layers]
        return torch.cat(parts, 1) if parts else rows[:, :0]

    def units(self, matrix: Tensor) -> tuple[Tensor, Tensor]:
        """[clients, units, columns] -> sums [clients, units] and sketches [clients, units, 8]."""
        clients, units, columns = matrix.shape
        projected = torch.mm(self.unit_projection, matrix.reshape(clients * units, columns).t())
        sketched = projected.view(1 + UNIT_BUCKETS, clients, units)
        return sketched[0], sketched[1:].permute(1, 2, 0)


def _all_signs(layout: Layout) -> Tensor:
    """One a value; a layer that is kept whole has none to change, so that it can be read off."""
    parts = [
        np.ones(layer.size, np.float32)
        if buckets == layer.size
        else _signs(stream(SEED, "sketch", index, layer.size), layer.size)
        for index, (layer, buckets) in enumerate(zip(layout.layers, layout.sketch_buckets, strict=True))
    ]
    return torch.from_numpy(np.concatenate(parts) if parts else np.empty(0, np.float32))


def _folded(layout: Layout, signs: Tensor) -> Iterator[tuple[slice, Tensor | None, int]]:
    """Place, signs and buckets of each layer; no signs for a layer that is kept whole."""
    offset = 0
    for layer, buckets in zip(layout.layers, layout.sketch_buckets, strict=True):
        part = slice(offset, offset + layer.size)
        offset += layer.size
        yield part, None if buckets == layer.size else signs[part], buckets


def _bucketed(values: Tensor, signs: Tensor | None, buckets: int) -> Tensor:
    if signs is None:
        return values
    signed = values * signs
    folds = signed.shape[1] // buckets
    found = signed[:, : folds * buckets].view(len(signed), folds, buckets).sum(1)
    rest = signed.shape[1] - folds * buckets
    if rest:
        found[:, :rest] += signed[:, folds * buckets :]
    return found


def _signs(random: np.random.Generator, size: int) -> np.ndarray:
    return random.integers(0, 2, size).astype(np.float32) * 2 - 1


def _unit_projection(layout: Layout, device: torch.device) -> Tensor:
    if layout.unit_layer is None:
        return torch.empty(1 + UNIT_BUCKETS, 0, dtype=torch.float32, device=device)
    columns = layout.layers[layout.unit_layer].shape[1]
    random = stream(SEED, "unit sketch", columns)
    matrix = np.zeros((1 + UNIT_BUCKETS, columns), np.float32)
    matrix[0] = 1.0
    places = random.permutation(columns) % UNIT_BUCKETS
    matrix[1 + places, np.arange(columns)] = _signs(random, columns)
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
