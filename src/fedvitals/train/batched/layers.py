"""Layers with a client axis, forward and backward by hand.

By hand because a backward pass through autograd costs as much again as the arithmetic itself at these sizes (measured:
60 ms against 37 ms for a hundred small clients). Weights and gradients are views of the flat matrices; a layer
writes its gradient and gives back the gradient of its input.
"""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class BatchedLayer(Protocol):
    """One layer of many clients at once. `clients` of the bound weights are in use: the first ones."""

    def forward(self, x: Tensor) -> Tensor: ...
    def backward(self, dy: Tensor, *, wants_input: bool) -> Tensor | None: ...


class Weights:
    """The flat weights and gradients of the clients in use, cut into a layer's tensors."""

    def __init__(self) -> None:
        self.weights = self.gradient = torch.empty(0, 0)

    def bind(self, weights: Tensor, gradient: Tensor) -> None:
        self.weights, self.gradient = weights, gradient

    def view(self, part: slice, shape: tuple[int, ...]) -> Tensor:
        return self.weights[:, part].view(len(self.weights), *shape)

    def gradient_view(self, part: slice, shape: tuple[int, ...]) -> Tensor:
        return self.gradient[:, part].view(len(self.gradient), *shape)


class Dense:
    """nn.Linear."""

    def __init__(self, flat: Weights, layer: nn.Linear, weight: slice, bias: slice | None) -> None:
        self._flat, self._weight, self._bias = flat, weight, bias
        self._shape = (layer.out_features, layer.in_features)
        self._x = torch.empty(0)

    def forward(self, x: Tensor) -> Tensor:
        self._x = x
        weight = self._flat.view(self._weight, self._shape).transpose(1, 2)
        if self._bias is None:
            return torch.bmm(x, weight)
        bias = self._flat.view(self._bias, (1, self._shape[0]))
        return torch.baddbmm(bias, x, weight)

    def backward(self, dy: Tensor, *, wants_input: bool) -> Tensor | None:
        # Into a tensor of its own first: written straight into the wide gradient matrix, the product takes a slow path.
        self._flat.gradient_view(self._weight, self._shape).copy_(torch.bmm(dy.transpose(1, 2), self._x))
        if self._bias is not None:
            torch.sum(dy, 1, out=self._flat.gradient_view(self._bias, (self._shape[0],)))
        return torch.bmm(dy, self._flat.view(self._weight, self._shape)) if wants_input else None


class Rectified:
    """nn.ReLU."""

    def __init__(self) -> None:
        self._y = torch.empty(0)

    def forward(self, x: Tensor) -> Tensor:
        self._y = x.relu_()
        return self._y

    def backward(self, dy: Tensor, *, wants_input: bool) -> Tensor | None:
        return torch.ops.aten.threshold_backward(dy, self._y, 0)  # type: ignore[no-any-return]


class HyperbolicTangent:
    """nn.Tanh."""

    def __init__(self) -> None:
        self._y = torch.empty(0)

    def forward(self, x: Tensor) -> Tensor:
        self._y = x.tanh()
        return self._y

    def backward(self, dy: Tensor, *, wants_input: bool) -> Tensor | None:
        return torch.ops.aten.tanh_backward(dy, self._y)  # type: ignore[no-any-return]


class Flattened:
    """nn.Flatten: all axes after clients and rows become one."""

    def __init__(self) -> None:
        self._shape = torch.Size()

    def forward(self, x: Tensor) -> Tensor:
        self._shape = x.shape
        return x.flatten(2)

    def backward(self, dy: Tensor, *, wants_input: bool) -> Tensor | None:
        return dy.view(self._shape)


def cross_entropy(logits: Tensor, y: Tensor, share: Tensor | float) -> tuple[Tensor, Tensor]:
    """Each client's mean loss [clients] and its gradient by the logits. `share` is a row's part in its batch: one
    number, or [clients, rows] with 0 for rows that only fill up."""
    logs = F.log_softmax(logits, dim=2)
    wanted = y.unsqueeze(2)
    picked = logs.gather(2, wanted).squeeze(2)
    losses = -(picked * share).sum(1)
    gradient = logs.exp_()
    gradient.scatter_add_(2, wanted, torch.full((), -1.0).expand(wanted.shape))
    if isinstance(share, Tensor):
        # Not a product: a row that fills up may hold NaN, and NaN times 0 is NaN.
        losses = -torch.where(share > 0, picked * share, 0.0).sum(1)
        gradient = torch.where(share.unsqueeze(2) > 0, gradient * share.unsqueeze(2), 0.0)
    else:
        gradient.mul_(share)
    return losses, gradient
