"""Values as they are, in their layer's own format."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from fedvitals.codecs.frame import Layer
from fedvitals.codecs.numbers import Floats, floats_of, raw_bytes, tensor_of
from fedvitals.codecs.streams import Sink, Source


class Exact:
    """Every bit."""

    def write(self, sink: Sink, layers: Sequence[Layer], values: Sequence[Floats]) -> None:
        for layer, array in zip(layers, values, strict=True):
            sink.raw(raw_bytes(layer.name, torch.from_numpy(array).to(layer.dtype)), layer.dtype.itemsize)

    def read(self, source: Source, layers: Sequence[Layer], counts: Sequence[int]) -> list[Floats]:
        return [
            floats_of(layer.name, tensor_of(Layer(layer.name, layer.dtype, (count,)), self._raw(source, layer, count)))
            for layer, count in zip(layers, counts, strict=True)
        ]

    def bounds(self, layers: Sequence[Layer], values: Sequence[Floats]) -> list[float]:
        """What a value made by a reduction (a factor, say) rounds off in the layer's format."""
        return [_rounding(layer.dtype, array) for layer, array in zip(layers, values, strict=True)]

    @staticmethod
    def _raw(source: Source, layer: Layer, count: int) -> bytes:
        return source.raw(count * layer.dtype.itemsize, layer.dtype.itemsize)


def _rounding(dtype: torch.dtype, array: Floats) -> float:
    limits = torch.finfo(dtype)
    return float(np.abs(array).max(initial=0.0)) * limits.eps + limits.smallest_normal
