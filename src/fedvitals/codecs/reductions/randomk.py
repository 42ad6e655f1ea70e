"""`randomk:SHARE`: a share of each layer's values, chosen by chance; or of all layers' together, `randomk:0.01:update`.
The places follow from a seed, so they cost four bytes together. Values are not scaled up for those that are left out:
`feedback(...)` sends these later instead.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedvitals.codecs.frame import Layer
from fedvitals.codecs.numbers import Floats
from fedvitals.codecs.reductions.scattered import Scattered, kept_of, parsed_across, split_by
from fedvitals.codecs.stages import Kept
from fedvitals.codecs.streams import Positions, Sink, Source

ACROSS = ("layer", "update")
_SEED = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class RandomK(Scattered):
    """As likely one value as another."""

    share: float
    across: str = "layer"

    def reduce(self, layers: Sequence[Layer], arrays: Sequence[Floats]) -> list[Kept]:
        seed = 0
        for array in arrays:
            seed = zlib.crc32(array.tobytes(), seed)
        places = self._places(seed, [len(array) for array in arrays])
        return [Kept(array[where], where, seed) for array, where in zip(arrays, places, strict=True)]

    def write(self, sink: Sink, layers: Sequence[Layer], kept: Sequence[Kept]) -> None:
        if kept:
            sink.raw(_SEED.pack(kept[0].seed))

    def read(self, source: Source, layers: Sequence[Layer]) -> list[Positions | None]:
        if not layers:
            return []
        (seed,) = _SEED.unpack(source.raw(_SEED.size))
        if any(layer.values for layer in layers):
            source.expect(1)  # places are worked out before values are read: not where none follow
        return list(self._places(seed, [layer.values for layer in layers]))

    def _places(self, seed: int, values: Sequence[int]) -> list[Positions]:
        """Where the smallest of so many random words are, by a generator whose bits never change."""
        generator = np.random.Philox(key=seed)
        if self.across == "update":
            total = sum(values)
            return split_by(_least(np.asarray(generator.random_raw(total)), kept_of(total, self.share)), values)
        return [_least(np.asarray(generator.random_raw(count)), kept_of(count, self.share)) for count in values]


def random_k(argument: str | None) -> RandomK:
    """From the text after `randomk:`."""
    return RandomK(*parsed_across("randomk", argument, ACROSS))


def _least(words: np.ndarray, count: int) -> Positions:
    if not count:
        return np.zeros(0, dtype=np.int64)
    most = np.partition(words, count - 1)[count - 1]
    return np.flatnonzero(words <= most)[:count]
