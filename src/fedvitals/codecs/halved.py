"""Floats in two bytes: `fp16` and `bf16`. Integers, and floats that are that short already, stay as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedvitals.codecs.frame import Entry, pack, unpack
from fedvitals.codecs.identity import raw_bytes, tensor_of
from fedvitals.codecs.protocol import Update, require_finite
from fedvitals.errors import CodecError

FORMATS = {"fp16": torch.float16, "bf16": torch.bfloat16}
_TWICE_ROUNDED = 1.01  # a float64 goes by way of float32


@dataclass(frozen=True, slots=True)
class Halved:
    """Every float to the nearest of its short format: 11 bits of it with fp16, 8 with bf16, which has the range of
    float32."""

    id: str

    def __post_init__(self) -> None:
        if self.id not in FORMATS:
            raise CodecError(f"there is no format {self.id!r}; there are {', '.join(FORMATS)}")

    @property
    def config(self) -> dict[str, Any]:
        return {"id": self.id}

    @property
    def lossless(self) -> bool:
        return False

    def encode(self, update: Update) -> bytes:
        require_finite(update)
        return pack([Entry(name, t.dtype, tuple(t.shape), self._payload(name, t)) for name, t in update.items()])

    def decode(self, data: bytes) -> dict[str, Tensor]:
        return {entry.name: self._tensor(entry) for entry in unpack(data)}

    def error_bound(self, update: Update) -> float:
        """Half of the last digit of the largest value, and of the smallest that there is."""
        kind = torch.finfo(FORMATS[self.id])
        shortened = [t for t in update.values() if _is_long(t.dtype) and t.numel()]
        largest = max((float(t.abs().max()) for t in shortened), default=0.0)
        return _TWICE_ROUNDED * (largest * kind.eps / 2 + kind.smallest_normal * kind.eps)

    def _payload(self, name: str, tensor: Tensor) -> bytes:
        if not _is_long(tensor.dtype):
            return raw_bytes(name, tensor)
        short = tensor.detach().to(FORMATS[self.id])
        if not bool(short.isfinite().all()):
            most = torch.finfo(FORMATS[self.id]).max
            raise CodecError(f"layer {name!r} has values beyond {most:g}, the largest of {self.id}")
        return raw_bytes(name, short)

    def _tensor(self, entry: Entry) -> Tensor:
        if not _is_long(entry.dtype):
            return tensor_of(entry)
        return tensor_of(entry._replace(dtype=FORMATS[self.id])).to(entry.dtype)


def _is_long(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point and dtype.itemsize > 2
