"""Averages weighted by samples, and the server optimizers that take the average for a gradient."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedvitals.train.aggregators.protocol import State, shares, weighted_sum


@dataclass(frozen=True, slots=True)
class FedAvg:
    """McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017."""

    lr: float = 1.0

    def init(self, size: int) -> State:
        return {}

    def apply(self, updates: Tensor, weights: Tensor, state: State) -> tuple[Tensor, State]:
        step = weighted_sum(updates, shares(updates, weights))
        return (step if self.lr == 1.0 else step.mul_(self.lr)), state


@dataclass(frozen=True, slots=True)
class FedAsync(FedAvg):
    """The global model moves a part of the way to the clients' own: Xie, Koyejo and Gupta, "Asynchronous Federated
    Optimization", arXiv:1903.03934, Algorithm 1, whose alpha is `lr`.

    An average of the differences between the clients' models and the global one as it is now; that these are handed in,
    and not the differences from the model that a client began with, is the work of train/asynchronous.
    """

    lr: float = 0.6


@dataclass(frozen=True, slots=True)
class FedAvgM:
    """FedAvg with momentum at the server: Hsu, Qi and Brown, "Measuring the Effects of Non-Identical Data Distribution
    for Federated Visual Classification", arXiv:1909.06335."""

    lr: float = 1.0
    momentum: float = 0.9

    def init(self, size: int) -> State:
        return {"velocity": torch.zeros(size)}

    def apply(self, updates: Tensor, weights: Tensor, state: State) -> tuple[Tensor, State]:
        mean = weighted_sum(updates, shares(updates, weights))
        velocity = state["velocity"] * self.momentum + mean
        return velocity * self.lr, {"velocity": velocity}


@dataclass(frozen=True, slots=True)
class FedAdam:
    """Reddi et al., "Adaptive Federated Optimization", ICLR 2021, Algorithm 2.

    As there: no bias correction, and the second moment begins at tau squared. A step moves each value by about `lr`,
    whatever the size of the updates: 0.01 to 0.1 is usual, 1.0 (right for an average) is far too much.
    """

    lr: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    def init(self, size: int) -> State:
        return {"first": torch.zeros(size), "second": torch.full((size,), self.tau**2)}

    def apply(self, updates: Tensor, weights: Tensor, state: State) -> tuple[Tensor, State]:
        mean = weighted_sum(updates, shares(updates, weights))
        first = self.beta1 * state["first"] + (1 - self.beta1) * mean
        second = self.beta2 * state["second"] + (1 - self.beta2) * mean.square()
        return self.lr * first / (second.sqrt() + self.tau), {"first": first, "second": second}
