"""Single values on a device, brought to the host together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


@torch.no_grad()
def host_numbers(values: Sequence[Any]) -> list[float] | None:
    """One float each; None when they are not all tensors of one value."""
    if not all(isinstance(value, Tensor) and value.numel() == 1 and not value.is_complex() for value in values):
        return None
    device = values[0].device
    dtype = torch.float64 if any(value.dtype is torch.float64 for value in values) else torch.float32
    together = torch.stack([value.detach().reshape(()).to(device=device, dtype=dtype) for value in values])
    found: list[float] = together.tolist()
    return found
