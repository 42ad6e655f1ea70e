"""Inner products of updates, from which both robust families that look at whole updates get their distances."""

from __future__ import annotations

import torch
from torch import Tensor

_BLOCK_VALUES = 2**22  # turned into float64 at a time


def inner_products(updates: Tensor) -> Tensor:
    """[clients, clients] in float64: the square of any float32 fits, and near updates keep their distance."""
    total = torch.zeros(len(updates), len(updates), dtype=torch.float64, device=updates.device)
    for block in torch.split(updates, max(1, _BLOCK_VALUES // len(updates)), dim=1):
        exact = block.to(torch.float64)
        total += exact @ exact.T
    return total


def squared_distances(products: Tensor) -> Tensor:
    """[clients, clients], exactly symmetric and zero on the diagonal."""
    squares = products.diagonal()
    distances = (squares[:, None] + squares[None, :] - 2 * products).clamp_(min=0)
    return torch.triu(distances, 1) + torch.triu(distances, 1).T
