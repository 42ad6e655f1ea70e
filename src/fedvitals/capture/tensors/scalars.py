"""Single values on a device, brought to the host together."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


@torch.no_grad()
def host_numbers(values: Sequence[Tensor]) -> list[float] | None:
    """One float each; None when they are not all tensors of one value."""
    if not all(isinstance(value, Tensor) and value.numel() == 1 and not value.is_complex() for value in values):
        return None
    device = values[0].device
    together = torch.stack([value.reshape(()).to(device=device, dtype=torch.float64) for value in values])
    found: list[float] = together.tolist()
    return found
