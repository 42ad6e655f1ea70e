"""Local SGD on flat weights: of one client [size], or of many [clients, size] with the same lines.

In place throughout: all layers lie in one vector, so that each line is one operation, and none takes new memory but the
distance of the proximal term.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedvitals.train.sections import TrainSpec


@dataclass(frozen=True, slots=True, eq=False)
class LocalSGD:
    """Momentum, weight decay, clipping and a proximal term (FedProx, Li et al. 2020), as torch.optim.SGD has them."""

    momentum: float
    weight_decay: float
    clip: float
    proximal: float
    trainable: Tensor | None  # mask of what moves; None: everything

    @staticmethod
    def of(spec: TrainSpec, trainable: Tensor | None) -> LocalSGD:
        return LocalSGD(spec.momentum, spec.weight_decay, spec.clip, spec.proximal, trainable)

    def velocity(self, like: Tensor) -> Tensor | None:
        return torch.zeros_like(like) if self.momentum else None

    def step(
        self, weights: Tensor, gradient: Tensor, velocity: Tensor | None, received: Tensor, lr: float | Tensor
    ) -> None:
        """Move `weights` in place; the gradient is written to as well. `lr` may be a column, one rate a client."""
        if self.proximal:
            gradient.add_(self._masked(weights - received), alpha=self.proximal)
        if self.clip:
            norm = torch.linalg.vector_norm(gradient, dim=-1, keepdim=True)
            gradient.mul_(norm.add_(1e-6).reciprocal_().mul_(self.clip).clamp_(max=1.0))
        if self.weight_decay:
            gradient.add_(self._masked(weights), alpha=self.weight_decay)
        if velocity is not None:
            gradient = velocity.mul_(self.momentum).add_(gradient)
        if isinstance(lr, Tensor):
            weights.addcmul_(gradient, lr, value=-1.0)
        else:
            weights.sub_(gradient, alpha=lr)

    def _masked(self, values: Tensor) -> Tensor:
        return values if self.trainable is None else values * self.trainable
