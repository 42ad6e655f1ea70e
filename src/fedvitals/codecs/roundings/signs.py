"""The signs of values, and the mean of their sizes: one bit a value, one scale for all layers together. After `topk` it
is sparse ternary: plus, minus, or nothing (F. Sattler et al., Sparse Ternary Compression, 2019).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedvitals.codecs.frame import Layer
from fedvitals.codecs.numbers import Floats
from fedvitals.codecs.roundings.scales import read_scale, write_scale
from fedvitals.codecs.streams import Sink, Source


class Signs:
    """Plus or minus the mean size."""

    def write(self, sink: Sink, layers: Sequence[Layer], values: Sequence[Floats]) -> None:
        if not layers:
            return
        write_scale(sink, _mean_size(values))
        sink.symbols(np.concatenate([array > 0 for array in values]).astype(np.uint8), 2)

    def read(self, source: Source, layers: Sequence[Layer], counts: Sequence[int]) -> list[Floats]:
        if not layers:
            return []
        scale = read_scale(source, layers[0].name)
        signed = (source.symbols(sum(counts), 2).astype(np.float64) * 2.0 - 1.0) * scale
        return list(np.split(signed, np.cumsum(counts)[:-1]))

    def bounds(self, layers: Sequence[Layer], values: Sequence[Floats]) -> list[float]:
        """The largest size: no value is further from its sign's mean."""
        largest = max((float(np.abs(array).max(initial=0.0)) for array in values), default=0.0)
        return [1.000001 * largest] * len(layers)


def _mean_size(values: Sequence[Floats]) -> float:
    """Of all together, in a way that cannot overflow."""
    total = sum(len(array) for array in values)
    return float(sum(float(np.abs(array).sum(dtype=np.float64) / total) for array in values)) if total else 0.0
