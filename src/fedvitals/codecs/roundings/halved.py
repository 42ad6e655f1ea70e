"""`fp16` and `bf16`: half the bits of a float32, a quarter of a float64's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fedvitals.codecs.frame import Layer
from fedvitals.codecs.numbers import Floats, floats_of, raw_bytes, tensor_of
from fedvitals.codecs.streams import Sink, Source
from fedvitals.errors import CodecError

FORMATS = {"fp16": torch.float16, "bf16": torch.bfloat16}
_TWICE_ROUNDED = 1.01  # into the short format and out of the long one's


@dataclass(frozen=True, slots=True)
class Halved:
    """Values in two bytes; those that are as short already stay as they are."""

    id: str

    def write(self, sink: Sink, layers: Sequence[Layer], values: Sequence[Floats]) -> None:
        for layer, array in zip(layers, values, strict=True):
            short = torch.from_numpy(array).to(self._format(layer))
            if not bool(short.isfinite().all()):
                most = torch.finfo(short.dtype).max
                raise CodecError(f"layer {layer.name!r} has values beyond {most:g}, the largest of {self.id}")
            sink.raw(raw_bytes(layer.name, short), 2)

    def read(self, source: Source, layers: Sequence[Layer], counts: Sequence[int]) -> list[Floats]:
        return [
            floats_of(layer.name, tensor_of(Layer(layer.name, self._format(layer), (count,)), source.raw(2 * count, 2)))
            for layer, count in zip(layers, counts, strict=True)
        ]

    def bounds(self, layers: Sequence[Layer], values: Sequence[Floats]) -> list[float]:
        """Half a step of the short format at the largest value."""
        found = []
        for layer, array in zip(layers, values, strict=True):
            kind = torch.finfo(self._format(layer))
            largest = float(np.abs(array).max(initial=0.0))
            found.append(_TWICE_ROUNDED * (largest * kind.eps / 2 + kind.smallest_normal * kind.eps))
        return found

    def _format(self, layer: Layer) -> torch.dtype:
        return FORMATS[self.id] if layer.dtype.itemsize > 2 else layer.dtype
