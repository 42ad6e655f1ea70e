"""`quantize:BITS[:stochastic][:row]`: each value as one of 2^BITS evenly spaced ones between the least and the largest.

(F. Seide et al., 1-Bit Stochastic Gradient Descent, 2014; A. Reisizadeh et al., FedPAQ, 2020.) The nearest of them, or
by chance one of the two around it, so that the mean is right; one scale a layer, or one a row of it.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedvitals.codecs.frame import Layer
from fedvitals.codecs.numbers import Floats
from fedvitals.codecs.streams import Sink, Source
from fedvitals.errors import CodecError

MOST_BITS = 8
_ROUNDING = 1.00001  # of the arithmetic in between


@dataclass(frozen=True, slots=True)
class Uniform:
    """Values in 1 to 8 bits each, and their range: 8 bytes, or 16 where single precision would not hold it."""

    bits: int
    stochastic: bool = False
    row: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= MOST_BITS:
            raise CodecError(f"quantize:{self.bits}: right are 1 to {MOST_BITS} bits")

    @property
    def _most(self) -> int:
        return (1 << self.bits) - 1

    def write(self, sink: Sink, layers: Sequence[Layer], values: Sequence[Floats]) -> None:
        for layer, array in zip(layers, values, strict=True):
            rows = self._rows(layer, array)
            if not array.size:
                continue
            low, high = rows.min(1, keepdims=True), rows.max(1, keepdims=True)
            if not bool(np.isfinite(high - low).all()):
                raise CodecError(
                    f"layer {layer.name!r} spans {low.min():g} to {high.max():g}, which is too wide to divide"
                )
            sink.count(array.dtype.itemsize)
            sink.raw(np.concatenate((low, high)).astype(array.dtype.newbyteorder("<")).tobytes())
            sink.symbols(self._codes(rows, low, high).reshape(-1), self._most + 1)

    def read(self, source: Source, layers: Sequence[Layer], counts: Sequence[int]) -> list[Floats]:
        return [self._array(source, layer, count) for layer, count in zip(layers, counts, strict=True)]

    def bounds(self, layers: Sequence[Layer], values: Sequence[Floats]) -> list[float]:
        """Half a step of the widest range; a whole one where chance decides."""
        found = []
        for layer, array in zip(layers, values, strict=True):
            rows = self._rows(layer, array)
            widest = float((rows.max(1) - rows.min(1)).max(initial=0.0)) if array.size else 0.0
            found.append(_ROUNDING * widest / self._most / (1 if self.stochastic else 2))
        return found

    def _rows(self, layer: Layer, array: Floats) -> Floats:
        if self.row and len(layer.shape) > 1 and len(array) == layer.values and array.size:
            return array.reshape(layer.shape[0], -1)
        return array.reshape(1, -1)

    def _codes(self, rows: Floats, low: Floats, high: Floats) -> NDArray[np.uint8]:
        with np.errstate(divide="ignore", invalid="ignore"):
            inverse = np.where(high > low, self._most / (high - low), 0).astype(rows.dtype)
        inverse[~np.isfinite(inverse)] = 0  # a range below the least that can be divided by
        scaled = (rows - low) * inverse
        if self.stochastic:
            chance = np.random.Generator(np.random.Philox(zlib.crc32(np.ascontiguousarray(rows).tobytes())))
            scaled += chance.random(scaled.shape, dtype=np.float32)
            np.floor(scaled, out=scaled)
        else:
            np.rint(scaled, out=scaled)
        return scaled.clip(0, self._most, out=scaled).astype(np.uint8)

    def _array(self, source: Source, layer: Layer, count: int) -> Floats:
        if not count:
            return np.zeros(0, dtype=np.float32)
        rows = layer.shape[0] if self.row and len(layer.shape) > 1 and count == layer.values else 1
        width = source.count(8)
        if width not in (4, 8):
            raise CodecError(f"damaged update: layer {layer.name!r} has scales of {width} bytes")
        raw = np.frombuffer(source.raw(2 * rows * width), dtype=f"<f{width}")
        ends: Floats = raw.astype(np.float32 if width == 4 else np.float64)
        low, high = ends[:rows, None], ends[rows:, None]
        with np.errstate(over="ignore", invalid="ignore"):
            step = (high - low) / self._most
        if not (bool(np.isfinite(step).all()) and bool((low <= high).all())):
            first = (float(low[0, 0]), float(high[0, 0]))
            raise CodecError(f"damaged update: layer {layer.name!r} claims to lie between {first[0]} and {first[1]}")
        codes = source.symbols(count, self._most + 1).reshape(rows, -1)
        found: Floats = (low + codes.astype(ends.dtype) * step).reshape(-1)
        return found


def parsed(argument: str | None) -> Uniform:
    """From the text after `quantize:`."""
    bits, *ways = (argument or "").split(":")
    known = {"stochastic", "nearest", "row", "tensor"}
    if not (bits.isascii() and bits.isdigit() and len(bits) <= 2) or not known.issuperset(ways):
        raise CodecError(
            f"codec 'quantize' takes a number of bits, as in 'quantize:8' or 'quantize:4:stochastic:row'; "
            f"found {argument!r}"
        )
    if len(set(ways)) < len(ways) or {"stochastic", "nearest"} <= set(ways) or {"row", "tensor"} <= set(ways):
        raise CodecError(f"quantize:{argument}: take one of nearest and stochastic, and one of tensor and row")
    return Uniform(int(bits), "stochastic" in ways, "row" in ways)
