"""The codec that changes nothing: raw little-endian values in a frame. What other codecs are measured against."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedvitals.codecs.frame import Entry, pack, unpack
from fedvitals.codecs.protocol import Update
from fedvitals.errors import CodecError


@dataclass(frozen=True, slots=True)
class Identity:
    """`identity`: every dense dtype, every bit, NaN and infinities included."""

    @property
    def config(self) -> dict[str, Any]:
        return {"id": "identity"}

    @property
    def lossless(self) -> bool:
        return True

    def encode(self, update: Update) -> bytes:
        return pack([Entry(name, t.dtype, tuple(t.shape), raw_bytes(name, t)) for name, t in update.items()])

    def decode(self, data: bytes) -> dict[str, Tensor]:
        return {entry.name: tensor_of(entry) for entry in unpack(data)}

    def error_bound(self, update: Update) -> float:
        return 0.0


def raw_bytes(name: str, tensor: Tensor) -> bytes:
    """A tensor's values in row-major order, little-endian."""
    if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_quantized:
        raise CodecError(f"layer {name!r} is not a dense tensor with values (layout {tensor.layout})")
    dense = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    if dense.numel() == 1:  # with a stride it counts as contiguous, and still cannot be seen as bytes
        dense = dense.clone(memory_format=torch.contiguous_format)
    return in_order(dense.view(torch.uint8), _width(dense.dtype)).numpy().tobytes()


def tensor_of(entry: Entry) -> Tensor:
    """The tensor whose raw values an entry holds; its shape must account for every byte."""
    wanted = entry.values * entry.dtype.itemsize
    if len(entry.payload) != wanted:
        raise CodecError(
            f"damaged update: layer {entry.name!r} of shape {entry.shape} takes {wanted} bytes, "
            f"{len(entry.payload)} are there"
        )
    if wanted == 0:
        return torch.empty(entry.shape, dtype=entry.dtype)
    raw = torch.frombuffer(bytearray(entry.payload), dtype=torch.uint8)  # a copy: tensors may be written to
    if entry.dtype is torch.bool and bool((raw > 1).any()):
        raise CodecError(f"damaged update: layer {entry.name!r} of bool holds other bytes than 0 and 1")
    return in_order(raw, _width(entry.dtype)).view(entry.dtype).reshape(entry.shape)


def in_order(raw: Tensor, width: int, byteorder: str = sys.byteorder) -> Tensor:
    """Bytes between this machine's order and little-endian, for numbers of `width` bytes. Its own inverse."""
    if byteorder == "little" or width == 1:
        return raw
    return raw.reshape(-1, width).flip(1).reshape(-1)


def _width(dtype: torch.dtype) -> int:
    return dtype.itemsize // 2 if dtype.is_complex else dtype.itemsize
