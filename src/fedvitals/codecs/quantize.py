"""`quantize:BITS`: each float as one of 2^BITS evenly spaced values between its layer's least and largest, packed.

(F. Seide et al., 1-Bit Stochastic Gradient Descent, 2014; A. Reisizadeh et al., FedPAQ, 2020.) Nearest value, one scale
a layer. Integers stay as they are.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedvitals.codecs.frame import Entry, pack, unpack
from fedvitals.codecs.identity import raw_bytes, tensor_of
from fedvitals.codecs.protocol import Update, require_finite
from fedvitals.errors import CodecError

MOST_BITS = 8
_RANGE = struct.Struct("<dd")  # least and largest
_ROUNDING = 1.000001  # of the arithmetic in between


@dataclass(frozen=True, slots=True)
class Quantize:
    """Floats in 1 to 8 bits each, and 16 bytes a layer."""

    bits: int

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= MOST_BITS:
            raise CodecError(f"quantize:{self.bits}: right are 1 to {MOST_BITS} bits")

    @property
    def config(self) -> dict[str, Any]:
        return {"id": "quantize", "argument": str(self.bits)}

    @property
    def lossless(self) -> bool:
        return False

    def encode(self, update: Update) -> bytes:
        require_finite(update)
        return pack([Entry(name, t.dtype, tuple(t.shape), self._payload(name, t)) for name, t in update.items()])

    def decode(self, data: bytes) -> dict[str, Tensor]:
        return {entry.name: self._tensor(entry) for entry in unpack(data)}

    def error_bound(self, update: Update) -> float:
        """Half a step of the layer with the widest range, and what writing a value in its own format rounds off."""
        bound = 0.0
        for tensor in update.values():
            if tensor.is_floating_point() and tensor.numel():
                values = tensor.detach().double()
                low, high = float(values.min()), float(values.max())
                own = torch.finfo(tensor.dtype)
                rounded = max(abs(low), abs(high)) * own.eps + own.smallest_normal
                bound = max(bound, _ROUNDING * self._step(low, high) / 2 + rounded)
        return bound

    def _step(self, low: float, high: float) -> float:
        return (high - low) / ((1 << self.bits) - 1)

    def _payload(self, name: str, tensor: Tensor) -> bytes:
        if not tensor.is_floating_point():
            return raw_bytes(name, tensor)
        if not tensor.numel():
            return b""
        values = tensor.detach().cpu().double().reshape(-1).numpy()
        low, high = float(values.min()), float(values.max())
        step = self._step(low, high)
        if not math.isfinite(high - low):
            raise CodecError(f"layer {name!r} spans {low:g} to {high:g}, which is too wide to divide into steps")
        codes = np.rint((values - low) / step) if step > 0 else np.zeros(len(values))
        return _RANGE.pack(low, high) + _packed(codes.clip(0, 2**self.bits - 1).astype(np.uint8), self.bits)

    def _tensor(self, entry: Entry) -> Tensor:
        if not entry.dtype.is_floating_point:
            return tensor_of(entry)
        wanted = _RANGE.size + -(-entry.values * self.bits // 8) if entry.values else 0
        if len(entry.payload) != wanted:
            raise CodecError(
                f"damaged update: layer {entry.name!r} of shape {entry.shape} takes {wanted} bytes in {self.bits} "
                f"bits, {len(entry.payload)} are there"
            )
        if not wanted:
            return torch.empty(entry.shape, dtype=entry.dtype)
        low, high = _RANGE.unpack_from(entry.payload)
        if not (math.isfinite(high - low) and low <= high):
            raise CodecError(f"damaged update: layer {entry.name!r} claims to lie between {low} and {high}")
        codes = _unpacked(entry.payload[_RANGE.size :], entry.values, self.bits)
        values = torch.from_numpy(low + codes * self._step(low, high))
        return values.to(entry.dtype).reshape(entry.shape)


def _packed(codes: NDArray[np.uint8], bits: int) -> bytes:
    """The low bits of each, one after the other."""
    if bits == MOST_BITS:
        return codes.tobytes()
    low_bits = np.unpackbits(codes[:, None], axis=1, bitorder="little")[:, :bits]
    return np.packbits(low_bits, bitorder="little").tobytes()


def _unpacked(data: bytes | memoryview, count: int, bits: int) -> NDArray[np.uint8]:
    raw = np.frombuffer(data, dtype=np.uint8)
    if bits == MOST_BITS:
        return raw
    low_bits = np.unpackbits(raw, count=count * bits, bitorder="little").reshape(count, bits)
    return np.packbits(low_bits, axis=1, bitorder="little")[:, 0]
