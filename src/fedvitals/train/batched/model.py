"""From a module to its batched version: by hand for chains of known layers, by `torch.func` for the rest."""

from __future__ import annotations

import copy
from typing import Protocol

import torch
from torch import Tensor, nn

from fedvitals.train.batched.layers import (
    BatchedLayer,
    Dense,
    Flattened,
    HyperbolicTangent,
    Rectified,
    cross_entropy,
)
from fedvitals.train.flat import FlatModel
from fedvitals.train.models import SequenceGRU, TokenGRU


class Unbatchable(Exception):  # noqa: N818  # it is an answer, not an error: the reason is shown to the user
    """A model that cannot be trained as a batch of clients, and why."""


class BatchedModel(Protocol):
    """A model of many clients."""

    how: str

    def losses_and_gradient(
        self, weights: Tensor, gradient: Tensor, x: Tensor, y: Tensor, share: Tensor | float
    ) -> Tensor:
        """Mean loss of each client [clients]; the gradient is written to `gradient` [clients, size]."""


class Chain:
    """Layers one after the other, each with its backward by hand."""

    how = "hand-batched layers"

    def __init__(self, layers: list[BatchedLayer]) -> None:
        self._layers = layers
        self._bound: tuple[int, int, int] = (0, 0, 0)
        self._first_with_weights = next(i for i, layer in enumerate(layers) if isinstance(layer, Dense))

    def losses_and_gradient(
        self, weights: Tensor, gradient: Tensor, x: Tensor, y: Tensor, share: Tensor | float
    ) -> Tensor:
        self._bind(weights, gradient)
        for layer in self._layers:
            x = layer.forward(x)
        losses, passed = cross_entropy(x, y, share)
        for index in range(len(self._layers) - 1, self._first_with_weights - 1, -1):
            wants_input = index > self._first_with_weights
            below = self._layers[index].backward(passed, wants_input=wants_input)
            if below is None:
                break
            passed = below
        return losses

    def _bind(self, weights: Tensor, gradient: Tensor) -> None:
        """Cut the matrices into layers when they are others than at the last step, which is seldom."""
        bound = (weights.data_ptr(), gradient.data_ptr(), weights.shape[0])
        if bound != self._bound:
            for layer in self._layers:
                layer.bind(weights, gradient)
            self._bound = bound


def batched_model(model: FlatModel, row: Tensor) -> BatchedModel:
    """The batched version of this model; Unbatchable with the reason when there is none. `row` is one of the data's."""
    _refuse_what_cannot_be(model.module)
    chain = _chain(model)
    if chain is not None and _trouble(chain, model, row) is None:
        return chain
    if type(model.module) in (TokenGRU, SequenceGRU) and model.trainable is None:
        from fedvitals.train.batched.recurrent import BatchedGRU

        return BatchedGRU(model)
    from fedvitals.train.batched.functional import Vmapped

    mapped = Vmapped(model)
    trouble = _changing_buffer(model.module, row) or _trouble(mapped, model, row)
    if trouble is not None:
        raise Unbatchable(trouble)
    return mapped


def _trouble(batched: BatchedModel, model: FlatModel, row: Tensor) -> str | None:
    """Two clients with one row: what cannot be done shows here, and not in the middle of a round."""
    weights = model.weights.expand(2, -1).clone()
    try:
        with torch.no_grad():
            batched.losses_and_gradient(
                weights,
                torch.zeros_like(weights),
                row.expand(2, 1, *row.shape).clone(),
                torch.zeros(2, 1, dtype=torch.int64),
                1.0,
            )
    except Exception as error:
        return f"{batched.how} cannot run it ({type(error).__name__}: {str(error)[:200]})"
    return None


def _changing_buffer(module: nn.Module, row: Tensor) -> str | None:
    """A buffer that the forward pass writes to is each client's own; what `vmap` makes of it would be lost."""
    trial = copy.deepcopy(module).train()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            trial(row.expand(2, *row.shape).clone())
    except Exception:
        return None  # whatever it is, it is not a matter of batches
    before = dict(module.named_buffers())
    changed = [name for name, buffer in trial.named_buffers() if not torch.equal(buffer, before[name])]
    return f"its forward pass writes to the buffer {changed[0]}, which each client has of its own" if changed else None


def _refuse_what_cannot_be(module: nn.Module) -> None:
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            raise Unbatchable("batch normalisation keeps running statistics, which each client must update on its own")
        if isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0:
            raise Unbatchable("dropout draws each client's masks from that client's own random numbers")


def _chain(model: FlatModel) -> Chain | None:
    """None when the module is not a plain chain of layers known here."""
    module = model.module
    if type(module) is not nn.Sequential or model.trainable is not None or _hooked(module):
        return None
    where = {layer.name: part for layer, part in zip(model.layers, model.slices, strict=True)}
    layers: list[BatchedLayer] = []
    for name, part in module._modules.items():  # not named_children(): that gives a module in two places only once
        layer = _layer(part, name, where)
        if layer is None:
            return None
        layers.append(layer)
    return Chain(layers) if any(isinstance(layer, Dense) for layer in layers) else None


def _hooked(module: nn.Module) -> bool:
    """Whether somebody looks at, or changes, what goes from layer to layer."""
    return any(part._forward_hooks or part._forward_pre_hooks or part._backward_hooks for part in module.modules())


def _layer(part: nn.Module | None, name: str, where: dict[str, slice]) -> BatchedLayer | None:
    # A tied weight or bias lies under the name of its first place, so it is missing here: autograd knows how to add up.
    if type(part) is nn.Linear and all(f"{name}.{own}" in where for own, _ in part.named_parameters()):
        return Dense(part, where[f"{name}.weight"], where.get(f"{name}.bias"))
    if type(part) is nn.ReLU:
        return Rectified()
    if type(part) is nn.Tanh:
        return HyperbolicTangent()
    if type(part) is nn.Flatten and part.start_dim == 1 and part.end_dim == -1:
        return Flattened()
    return None
