"""`qsgd:LEVELS`: a value as a sign and one of so many levels of its layer's norm, by chance one of the two around it:
so the mean is right (D. Alistarh et al., QSGD, NeurIPS 2017). Most values come to level 0: put `entropy` after it.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedvitals.codecs.frame import Layer
from fedvitals.codecs.numbers import Floats
from fedvitals.codecs.roundings.scales import is_single, norm_of, read_scale, write_scale
from fedvitals.codecs.streams import Sink, Source
from fedvitals.errors import CodecError

MOST_LEVELS = 2**14
_ROUNDING = 1.00001


@dataclass(frozen=True, slots=True)
class Qsgd:
    """One of `2 * levels + 1` symbols a value, and a norm a layer."""

    levels: int

    def __post_init__(self) -> None:
        if not 1 <= self.levels <= MOST_LEVELS:
            raise CodecError(f"qsgd:{self.levels}: right are 1 to {MOST_LEVELS} levels")

    def write(self, sink: Sink, layers: Sequence[Layer], values: Sequence[Floats]) -> None:
        for array in values:
            if array.size:
                norm = norm_of(array)
                write_scale(sink, norm)
                sink.symbols(self._codes(array, norm), 2 * self.levels + 1)

    def read(self, source: Source, layers: Sequence[Layer], counts: Sequence[int]) -> list[Floats]:
        found: list[Floats] = []
        for layer, count in zip(layers, counts, strict=True):
            if not count:
                found.append(np.zeros(0, dtype=np.float32))
                continue
            norm = read_scale(source, layer.name)
            signed = source.symbols(count, 2 * self.levels + 1).astype(np.int32) - self.levels
            values: Floats = signed.astype(np.float32 if is_single(norm) else np.float64)
            values *= norm / self.levels
            found.append(values)
        return found

    def bounds(self, layers: Sequence[Layer], values: Sequence[Floats]) -> list[float]:
        """One level."""
        return [_ROUNDING * norm_of(array) / self.levels for array in values]

    def _codes(self, array: Floats, norm: float) -> np.ndarray:
        inverse = self.levels / norm if norm > 0 else 0.0
        scaled = array * array.dtype.type(inverse if np.isfinite(inverse) else 0.0)
        chance = np.random.Generator(np.random.Philox(zlib.crc32(array.tobytes())))
        scaled += chance.random(len(array), dtype=np.float32)
        np.floor(scaled, out=scaled)
        scaled += self.levels
        return scaled.clip(0, 2 * self.levels, out=scaled).astype(np.uint16)


def parsed(argument: str | None) -> Qsgd:
    """From the text after `qsgd:`."""
    if argument is None or not (argument.isascii() and argument.isdigit() and len(argument) <= 6):
        raise CodecError(f"codec 'qsgd' takes a number of levels, as in 'qsgd:16'; found {argument!r}")
    return Qsgd(int(argument))
