"""`lowrank:RANK`: a matrix as the product of two narrow ones, found by a step of power iteration
(T. Vogels et al., PowerSGD, NeurIPS 2019). Vectors, and matrices that would not get smaller, travel whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedvitals.codecs.frame import Layer
from fedvitals.codecs.numbers import Floats
from fedvitals.codecs.stages import Kept, Whole
from fedvitals.codecs.streams import Positions
from fedvitals.errors import CodecError

MOST_RANK = 1024
ITERATIONS = 2


@dataclass(frozen=True, slots=True)
class LowRank(Whole):
    """Left factors, then right ones, of the same size: so one scale suits both when they are rounded."""

    rank: int

    def __post_init__(self) -> None:
        if not 1 <= self.rank <= MOST_RANK:
            raise CodecError(f"lowrank:{self.rank}: right is a rank from 1 to {MOST_RANK}")

    def reduce(self, layers: Sequence[Layer], arrays: Sequence[Floats]) -> list[Kept]:
        return [Kept(self._factors(layer, array)) for layer, array in zip(layers, arrays, strict=True)]

    def count(self, layer: Layer, places: Positions | None) -> int:
        rows, columns = _sides(layer)
        return self.rank * (rows + columns) if self._pays(rows, columns) else layer.values

    def restore(self, layer: Layer, places: Positions | None, values: Floats) -> Floats:
        rows, columns = _sides(layer)
        if not self._pays(rows, columns):
            return values
        left, right = self._parted(values, rows)
        with np.errstate(over="ignore", invalid="ignore"):  # forged factors may be huge
            product = left @ right.T
            if not bool(np.isfinite(product).all()):  # beyond single precision: the layer's type has the last word
                product = left.astype(np.float64) @ right.astype(np.float64).T
        if not bool(np.isfinite(product).all()):
            raise CodecError(f"damaged update: the factors of layer {layer.name!r} have no finite product")
        found: Floats = product.reshape(-1)
        return found

    def bound(self, layer: Layer, array: Floats, kept: Kept, rounded: float) -> float:
        """The most that the factors leave out; and what their own rounding, and that of sums of them, adds to it."""
        rows, columns = _sides(layer)
        if not self._pays(rows, columns):
            return rounded
        left, right = self._parted(kept.values.astype(np.float64), rows)
        with np.errstate(over="ignore", invalid="ignore"):
            left_out = float(np.abs(array.reshape(rows, columns) - left @ right.T).max())
        largest_left, largest_right = (float(np.abs(one).max()) + rounded for one in (left, right))
        sums = 4.0 * self.rank**2 * float(np.finfo(kept.values.dtype).eps) * largest_left * largest_right
        return 1.001 * left_out + 2.0 * self.rank * rounded * (largest_left + largest_right) + sums

    def _pays(self, rows: int, columns: int) -> bool:
        return self.rank * (rows + columns) < rows * columns

    def _parted(self, values: Floats, rows: int) -> tuple[Floats, Floats]:
        cut = self.rank * rows
        return values[:cut].reshape(rows, self.rank), values[cut:].reshape(-1, self.rank)

    def _factors(self, layer: Layer, array: Floats) -> Floats:
        rows, columns = _sides(layer)
        if not self._pays(rows, columns):
            return array
        largest = float(np.abs(array).max(initial=0.0)) or 1.0
        matrix = array.reshape(rows, columns).astype(np.float64) / largest  # products neither overflow nor vanish
        right = np.random.Generator(np.random.Philox(key=rows * columns)).standard_normal((columns, self.rank))
        for _ in range(ITERATIONS):
            left, _ = np.linalg.qr(matrix @ right)
            right = matrix.T @ left
        balance = math.sqrt(float(np.abs(right).max()) / float(np.abs(left).max())) or 1.0
        both = np.concatenate(((left * balance).reshape(-1), (right / balance).reshape(-1)))
        return (both * math.sqrt(largest)).astype(array.dtype)


def low_rank(argument: str | None) -> LowRank:
    """From the text after `lowrank:`."""
    if argument is None or not (argument.isascii() and argument.isdigit() and len(argument) <= 5):
        raise CodecError(f"codec 'lowrank' takes a rank, as in 'lowrank:4'; found {argument!r}")
    return LowRank(int(argument))


def _sides(layer: Layer) -> tuple[int, int]:
    """A layer as a matrix: its first dimension, and all others together. Scalars and vectors have one column."""
    if len(layer.shape) < 2 or not layer.values:
        return layer.values, 1
    return layer.shape[0], layer.values // layer.shape[0]
