"""Layers with a client axis, forward and backward by hand.

By hand because a backward pass through autograd costs as much again as the arithmetic itself at these sizes (measured:
60 ms against 37 ms for a hundred small clients). A layer's weights and gradients are views of the flat matrices; it
writes its gradient and gives back the gradient of its input.
"""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

NOTHING = torch.empty(0)


class BatchedLayer(Protocol):
    """One layer of many clients at once."""

    def bind(self, weights: Tensor, gradient: Tensor) -> None:
        """Work on these flat matrices [clients, size] from now on."""

    def forward(self, x: Tensor) -> Tensor: ...
    def backward(self, dy: Tensor, *, wants_input: bool) -> Tensor | None: ...

    def forget(self) -> None:
        """Let go of what the forward pass kept for the backward pass."""


class Dense:
    """nn.Linear."""

    def __init__(self, layer: nn.Linear, weight: slice, bias: slice | None) -> None:
        self._weight_part, self._bias_part = weight, bias
        self._shape = (layer.out_features, layer.in_features)
        self._x = self._weight = self._weight_t = self._d_weight = torch.empty(0)
        self._bias = self._d_bias = torch.empty(0)

    def bind(self, weights: Tensor, gradient: Tensor) -> None:
        clients = weights.shape[0]
        self._weight = weights[:, self._weight_part].view(clients, *self._shape)
        self._weight_t = self._weight.transpose(1, 2)
        self._d_weight = gradient[:, self._weight_part].view(clients, *self._shape)
        if self._bias_part is not None:
            self._bias = weights[:, self._bias_part].view(clients, 1, -1)
            self._d_bias = gradient[:, self._bias_part]

    def forward(self, x: Tensor) -> Tensor:
        self._x = x
        if self._bias_part is None:
            return torch.bmm(x, self._weight_t)
        return torch.baddbmm(self._bias, x, self._weight_t)

    def backward(self, dy: Tensor, *, wants_input: bool) -> Tensor | None:
        # Not with out=: into a view of the wide matrix the product takes a slow path, a tenth of the whole training.
        self._d_weight.copy_(torch.bmm(dy.transpose(1, 2), self._x))
        if self._bias_part is not None:
            torch.sum(dy, 1, out=self._d_bias)
        return torch.bmm(dy, self._weight) if wants_input else None

    def forget(self) -> None:
        self._x = NOTHING


class Weightless:
    """A layer that has nothing to bind."""

    def bind(self, weights: Tensor, gradient: Tensor) -> None:
        """Nothing to do."""


class Rectified(Weightless):
    """nn.ReLU."""

    def __init__(self) -> None:
        self._y = torch.empty(0)

    def forward(self, x: Tensor) -> Tensor:
        self._y = x.relu_()
        return self._y

    def backward(self, dy: Tensor, *, wants_input: bool) -> Tensor | None:
        return torch.ops.aten.threshold_backward(dy, self._y, 0)  # type: ignore[no-any-return]

    def forget(self) -> None:
        self._y = NOTHING


class HyperbolicTangent(Weightless):
    """nn.Tanh."""

    def __init__(self) -> None:
        self._y = torch.empty(0)

    def forward(self, x: Tensor) -> Tensor:
        self._y = x.tanh()
        return self._y

    def backward(self, dy: Tensor, *, wants_input: bool) -> Tensor | None:
        return torch.ops.aten.tanh_backward(dy, self._y)  # type: ignore[no-any-return]

    def forget(self) -> None:
        self._y = NOTHING


class Flattened(Weightless):
    """nn.Flatten: all axes after clients and rows become one."""

    def __init__(self) -> None:
        self._x = torch.empty(0)

    def forward(self, x: Tensor) -> Tensor:
        self._x = x
        return x.flatten(2)

    def backward(self, dy: Tensor, *, wants_input: bool) -> Tensor | None:
        below = dy.view(self._x.shape)
        # Pictures have their channels last in memory, and what is laid out alike is computed several times faster.
        return below if self._x.is_contiguous() else torch.empty_like(self._x).copy_(below)

    def forget(self) -> None:
        self._x = NOTHING


FEW_CLASSES = 32
_MINUS_ONE = torch.full((), -1.0)


def _judged(logits: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """The logarithm of the wanted class's share, and all shares. Of few classes by hand: along a short axis torch's
    softmax takes several times as long."""
    if logits.shape[2] > FEW_CLASSES:
        logs = F.log_softmax(logits, dim=2)
        return logs.gather(2, wanted).squeeze(2), logs.exp_()
    logs = logits - logits.amax(2, keepdim=True)
    picked = logs.gather(2, wanted)
    shares = logs.exp_()
    sums = shares.sum(2, keepdim=True)
    return picked.sub_(sums.log()).squeeze(2), shares.div_(sums)


def cross_entropy(logits: Tensor, y: Tensor, share: Tensor | float) -> tuple[Tensor, Tensor]:
    """Each client's mean loss [clients] and its gradient by the logits. `share` is a row's part in its batch: one
    number, or [clients, rows] with 0 for rows that only fill up."""
    wanted = y.unsqueeze(2)
    picked, gradient = _judged(logits, wanted)
    gradient.scatter_add_(2, wanted, _MINUS_ONE.expand(wanted.shape))
    if isinstance(share, Tensor):
        # Not only a product: a row that fills up may hold NaN, and NaN times 0 is NaN.
        losses = -torch.where(share > 0, picked * share, 0.0).sum(1)
        return losses, torch.where(share.unsqueeze(2) > 0, gradient * share.unsqueeze(2), 0.0)
    return picked.sum(1).mul_(-share), gradient.mul_(share)
