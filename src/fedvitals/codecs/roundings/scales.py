"""The one number by which a layer's symbols are read."""

from __future__ import annotations

import math
import struct

import numpy as np

from fedvitals.codecs.numbers import Floats
from fedvitals.codecs.streams import Sink, Source
from fedvitals.errors import CodecError

_SINGLE, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_LEAST, _MOST = 1e-30, 1e37  # of what single precision keeps well


def is_single(scale: float) -> bool:
    """Whether single precision holds values of this scale."""
    return scale == 0.0 or _LEAST < scale < _MOST


def write_scale(sink: Sink, scale: float) -> None:
    """In four bytes where they hold it, in eight where not; rounded up, so that nothing lies beyond it."""
    sink.count(4 if is_single(scale) else 8)
    if not is_single(scale):
        sink.raw(_DOUBLE.pack(scale))
        return
    sink.raw(_SINGLE.pack(np.nextafter(np.float32(scale), np.float32(np.inf)) if scale else 0.0))


def read_scale(source: Source, name: str) -> float:
    """A scale that can be: finite, not negative."""
    width = source.count(8)
    if width not in (4, 8):
        raise CodecError(f"damaged update: layer {name!r} has a scale of {width} bytes")
    scale = float((_SINGLE if width == 4 else _DOUBLE).unpack(source.raw(width))[0])
    if not (math.isfinite(scale) and scale >= 0.0):
        raise CodecError(f"damaged update: layer {name!r} claims the scale {scale}")
    return scale


def norm_of(array: Floats) -> float:
    """The Euclidean norm, where squares would overflow or vanish, too."""
    largest = float(np.abs(array).max(initial=0.0))
    if largest == 0.0:
        return 0.0
    scaled = array / array.dtype.type(largest)
    return largest * math.sqrt(float(np.square(scaled).sum(dtype=np.float64)))
