"""Tensors as plain numbers and back: raw little-endian bytes for what goes through as it is, flat floats for what is
reckoned with."""

from __future__ import annotations

import sys

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedvitals.codecs.frame import Layer
from fedvitals.errors import CodecError

Floats = NDArray[np.floating]

_WIDE = 1e37  # float32 ends at 3.4e38: sums and differences of smaller values stay inside
_FINE = 1e-30  # and begins at 1.2e-38: shares of larger ones keep their precision
_WIDEST = 1e290  # the same of float64, which ends at 1.8e308, with room for norms of very many


def raw_bytes(name: str, tensor: Tensor) -> bytes:
    """A tensor's values in row-major order, little-endian."""
    dense = _dense(name, tensor).contiguous().reshape(-1)
    if dense.numel() <= 1:  # with a stride it counts as contiguous, and still cannot be seen as bytes
        dense = dense.clone(memory_format=torch.contiguous_format)
    return in_order(dense.view(torch.uint8), width(dense.dtype)).numpy().tobytes()


def tensor_of(layer: Layer, raw: bytes) -> Tensor:
    """The tensor whose raw values these are."""
    if not layer.values:
        return torch.empty(layer.shape, dtype=layer.dtype)
    values = torch.frombuffer(bytearray(raw), dtype=torch.uint8)  # a copy: tensors may be written to
    if layer.dtype is torch.bool and bool((values > 1).any()):
        raise CodecError(f"damaged update: layer {layer.name!r} of bool holds other bytes than 0 and 1")
    return in_order(values, width(layer.dtype)).view(layer.dtype).reshape(layer.shape)


def floats_of(name: str, tensor: Tensor) -> Floats:
    """A float tensor's values in a row: in single precision, or in double where that would not hold them."""
    dense = _dense(name, tensor).reshape(-1)
    if dense.dtype is torch.float64:
        _refuse_too_wide(name, dense.numpy())
        return dense.numpy()
    values: Floats = dense.float().numpy()
    if _safe(values):
        return values
    with np.errstate(invalid="ignore"):  # NaNs from strangers: whoever reads them refuses them
        return values.astype(np.float64)


def shaped(layer: Layer, values: Floats) -> Tensor:
    """A layer with these values; what its type cannot hold becomes the nearest that it can."""
    whole, limits = torch.from_numpy(values), torch.finfo(layer.dtype)
    if limits.max < torch.finfo(whole.dtype).max:
        whole = whole.clamp(limits.min, limits.max)
    return whole.to(layer.dtype).reshape(layer.shape)


def in_order(raw: Tensor, width: int, byteorder: str = sys.byteorder) -> Tensor:
    """Bytes between this machine's order and little-endian, for numbers of `width` bytes. Its own inverse."""
    if byteorder == "little" or width == 1:
        return raw
    return raw.reshape(-1, width).flip(1).reshape(-1)


def width(dtype: torch.dtype) -> int:
    """Bytes of one number; a complex value is two."""
    return dtype.itemsize // 2 if dtype.is_complex else dtype.itemsize


def require_dense(name: str, tensor: Tensor) -> None:
    """Refuse a tensor that has no values in memory, or not all of them."""
    if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_quantized:
        raise CodecError(f"layer {name!r} is not a dense tensor with values (layout {tensor.layout})")


def _dense(name: str, tensor: Tensor) -> Tensor:
    require_dense(name, tensor)
    return tensor.detach().cpu().resolve_conj().resolve_neg()


def _refuse_too_wide(name: str, values: Floats) -> None:
    largest = max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))
    if largest > _WIDEST:
        raise CodecError(
            f"layer {name!r} has values up to {largest:g}, too large for a lossy codec to reckon with "
            "(codec = 'identity' passes them through)"
        )


def _safe(values: Floats) -> bool:
    if not len(values):
        return True
    largest = max(abs(float(values.min())), abs(float(values.max())))
    return largest == 0.0 or _FINE < largest < _WIDE
