"""Any other model as a batch of clients: `torch.func.vmap` over stacked parameters."""

from __future__ import annotations

from collections.abc import Iterator

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
        self._places = list(_places(model))
        self._mask = model.trainable
        self._step = vmap(grad_and_value(self._loss), in_dims=(0, 0, 0, 0))

    def prepared(self, x: Tensor) -> Tensor:
        return x

    def losses_and_gradient(
        self, weights: Tensor, gradient: Tensor, x: Tensor, y: Tensor, share: Tensor | float
    ) -> Tensor:
        rows = share if isinstance(share, Tensor) else torch.full(y.shape, share)
        found, losses = self._step(weights, x, y, rows)
        gradient.copy_(found if self._mask is None else found * self._mask)
        return losses  # type: ignore[no-any-return]  # vmap is untyped

    def _loss(self, weights: Tensor, x: Tensor, y: Tensor, share: Tensor) -> Tensor:
        state = {name: weights[part].view(shape) for name, part, shape in self._places}
        logits = functional_call(self._module, state, (x,), tie_weights=False)
        each = F.cross_entropy(logits, y, reduction="none")
        return torch.where(share > 0, each * share, 0.0).sum()


def _places(model: FlatModel) -> Iterator[tuple[str, slice, tuple[int, ...]]]:
    """Where each layer has to be put, by name: a tied one in all its places, a module in two places only once, because
    `functional_call` would take the first replacement for the original of the second and leave it there."""
    layers = zip(model.layers, model.slices, strict=True)
    lies = {id(_tensor(model.module, layer.name)): (part, layer.shape) for layer, part in layers}
    for prefix, owner in model.module.named_modules():
        for name, tensor in (*owner.named_parameters(recurse=False), *owner.named_buffers(recurse=False)):
            if id(tensor) in lies:
                yield (f"{prefix}.{name}" if prefix else name), *lies[id(tensor)]


def _tensor(module: nn.Module, name: str) -> Tensor:
    owner, _, short = name.rpartition(".")
    found: Tensor = getattr(module.get_submodule(owner), short)
    return found
