"""Local SGD on flat weights: of one client [size], or of many [clients, size] with the same lines."""

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
        """Move `weights` in place. `lr` may be a column, one rate a client; the gradient may be written to."""
        if self.proximal:
            gradient = self._masked(weights - received).mul_(self.proximal).add_(gradient)
        if self.clip:
            norm = torch.linalg.vector_norm(gradient, dim=-1, keepdim=True)
            gradient = gradient * (self.clip / (norm + 1e-6)).clamp(max=1.0)
        if self.weight_decay:
            gradient = torch.add(gradient, self._masked(weights), alpha=self.weight_decay)
        if velocity is not None:
            gradient = velocity.mul_(self.momentum).add_(gradient)
        if isinstance(lr, Tensor):
            weights.addcmul_(gradient, lr, value=-1.0)
        else:
            weights.sub_(gradient, alpha=lr)

    def _masked(self, values: Tensor) -> Tensor:
        return values if self.trainable is None else values * self.trainable
