"""`onebit`: one bit a value, unbiased: each block of a layer is rotated at random, and the signs are sent
(S. Vargaftik et al., DRIVE, NeurIPS 2021; EDEN, ICML 2022). The rotation is a random change of signs and a Hadamard
transform, so all values of a block share in each bit. Its seed comes from the values and is sent along.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedvitals.codecs.frame import Layer
from fedvitals.codecs.numbers import Floats
from fedvitals.codecs.streams import Sink, Source
from fedvitals.errors import CodecError

MOST_BLOCK = 4096  # values that are rotated together
_SEED = struct.Struct("<I")

_HALF = 0.5**0.5

Blocks = NDArray[np.float32]


class OneBit:
    """A sign a value, and a scale a block."""

    def write(self, sink: Sink, layers: Sequence[Layer], values: Sequence[Floats]) -> None:
        for layer, array in zip(layers, values, strict=True):
            if not array.size:
                continue
            seed = zlib.crc32(array.tobytes())
            turned, scales = _turned(array, seed)
            sink.raw(_SEED.pack(seed))
            sink.raw(_checked(layer, scales).astype("<f4").tobytes(), 4)
            sink.symbols((turned > 0).astype(np.uint8).reshape(-1), 2)

    def read(self, source: Source, layers: Sequence[Layer], counts: Sequence[int]) -> list[Floats]:
        return [self._array(source, layer, count) for layer, count in zip(layers, counts, strict=True)]

    def bounds(self, layers: Sequence[Layer], values: Sequence[Floats]) -> list[float]:
        """The most that a value and what its block's signs make of it are apart."""
        return [_most_apart(array) if array.size else 0.0 for array in values]

    @staticmethod
    def _array(source: Source, layer: Layer, count: int) -> Floats:
        if not count:
            return np.zeros(0, dtype=np.float32)
        (seed,) = _SEED.unpack(source.raw(_SEED.size))
        size = _block(count)
        blocks = -(-count // size)
        with np.errstate(invalid="ignore"):  # NaNs from strangers are refused in the next line
            scales = np.frombuffer(source.raw(4 * blocks, 4), dtype="<f4").astype(np.float64)
        if not (bool(np.isfinite(scales).all()) and bool((scales >= 0).all())):
            raise CodecError(f"damaged update: layer {layer.name!r} claims scales that cannot be")
        signs = source.symbols(blocks * size, 2).astype(np.float32).reshape(blocks, size) * 2 - 1
        return _turned_back(signs, scales, seed)[:count]


def _turned(array: Floats, seed: int) -> tuple[Blocks, NDArray[np.float64]]:
    """The blocks after their rotation, and for each the scale that makes its signs right in the mean."""
    size = _block(len(array))
    blocks = -(-len(array) // size)
    padded = np.zeros((blocks, size), dtype=array.dtype)
    padded.reshape(-1)[: len(array)] = array
    largest = np.abs(padded).max(1, keepdims=True)
    unit = (padded / np.where(largest > 0, largest, 1)).astype(
        np.float32
    )  # so that squares neither overflow nor vanish
    turned = _hadamard(unit * _flips(seed, blocks, size))
    sizes = np.abs(turned).sum(1, dtype=np.float64)
    squares = np.square(turned).sum(1, dtype=np.float64)
    return turned, np.where(sizes > 0, squares / np.where(sizes > 0, sizes, 1.0), 0.0) * largest[:, 0]


def _turned_back(signs: Blocks, scales: NDArray[np.float64], seed: int) -> Floats:
    """What the signs of all blocks stand for, in a row."""
    back: Floats = _hadamard(signs) * _flips(seed, *signs.shape) * scales[:, None]
    return back.reshape(-1)


def _most_apart(array: Floats) -> float:
    seed = zlib.crc32(array.tobytes())
    turned, scales = _turned(array, seed)
    back = _turned_back(np.where(turned > 0, 1.0, -1.0).astype(np.float32), scales, seed)[: len(array)]
    largest = float(np.abs(array).max()) + float(np.abs(back).max())
    return float(np.abs(array - back).max()) + 1e-5 * largest + 1e-37


def _block(count: int) -> int:
    return min(MOST_BLOCK, 1 << (count - 1).bit_length())


def _flips(seed: int, blocks: int, size: int) -> Blocks:
    """Plus or minus one for each place, by a generator whose bits never change."""
    words = np.random.Philox(key=seed).random_raw(-(-blocks * size // 64))
    bits = np.unpackbits(np.asarray(words, dtype="<u8").view(np.uint8), count=blocks * size, bitorder="little")
    flips: Blocks = bits.reshape(blocks, size).astype(np.float32) * 2 - 1
    return flips


def _hadamard(blocks: Blocks) -> Blocks:
    """Each row by the normalised Hadamard matrix, which is its own inverse: as a square, from both of its sides."""
    count, size = blocks.shape
    bits = size.bit_length() - 1
    one, other = _matrix(bits // 2), _matrix(bits - bits // 2)
    turned = one @ blocks.reshape(count, len(one), len(other)) @ other
    return turned.reshape(count, size).astype(np.float32, copy=False)


def _matrix(bits: int) -> Blocks:
    whole: NDArray[np.float64] = np.ones((1, 1))
    for _ in range(bits):
        whole = np.block([[whole, whole], [whole, -whole]])
    return (whole * _HALF**bits).astype(np.float32)


def _checked(layer: Layer, scales: NDArray[np.float64]) -> NDArray[np.float64]:
    if bool((scales > np.finfo(np.float32).max).any()):
        raise CodecError(f"layer {layer.name!r} has values too large for onebit's scales")
    return scales
