"""Any other model as a batch of clients: `torch.func.vmap` over stacked parameters."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from fedvitals.train.flat import FlatModel


class Vmapped:
    """The module itself, called with one client's weights at a time in principle and all at once in practice."""

    how = "torch.func.vmap"

    def __init__(self, model: FlatModel) -> None:
        self._module: nn.Module = model.module
        self._layers = list(zip(model.layers, model.slices, strict=True))
        self._mask = model.trainable
        self._shared = {layer.name for layer in model.layers}
        self._step = vmap(grad_and_value(self._loss), in_dims=(0, 0, 0, 0))

    def losses_and_gradient(
        self, weights: Tensor, gradient: Tensor, x: Tensor, y: Tensor, share: Tensor | float
    ) -> Tensor:
        rows = share if isinstance(share, Tensor) else torch.full(y.shape, share)
        found, losses = self._step(weights, x, y, rows)
        gradient.copy_(found if self._mask is None else found * self._mask)
        return losses  # type: ignore[no-any-return]  # vmap is untyped

    def _loss(self, weights: Tensor, x: Tensor, y: Tensor, share: Tensor) -> Tensor:
        state = {layer.name: weights[part].view(layer.shape) for layer, part in self._layers}
        logits = functional_call(self._module, state, (x,), tie_weights=True)
        each = F.cross_entropy(logits, y, reduction="none")
        return torch.where(share > 0, each * share, 0.0).sum()
