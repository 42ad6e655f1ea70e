"""Updates chosen by their nearness to others: Blanchard et al., "Machine Learning with Adversaries: Byzantine Tolerant
Gradient Descent", NeurIPS 2017.

Nobody knows the number f of bad clients, so it is taken as large as the proof allows, n >= 2 f + 3: f = (n - 3) // 2 of
n finite rows (0 below five). A row's score is the sum of its squared distances to its n - f - 2 nearest (at least one).
Sample counts are not used: they are the clients' own word.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedvitals.train.aggregators.distances import inner_products, squared_distances
from fedvitals.train.aggregators.protocol import State, finite_rows, shares, weighted_sum


@dataclass(frozen=True, slots=True)
class Krum:
    """The one update with the lowest score; of equal ones the shorter, then the first."""

    lr: float = 1.0

    def init(self, size: int) -> State:
        return {}

    def apply(self, updates: Tensor, weights: Tensor, state: State) -> tuple[Tensor, State]:
        shares(updates, weights)
        rows = finite_rows(updates)
        return self.lr * updates[rows[ranked(updates[rows])[0]]], state


@dataclass(frozen=True, slots=True)
class MultiKrum:
    """The plain mean of the m = n - f - 2 updates with the lowest scores (at least one): the most the paper allows."""

    lr: float = 1.0

    def init(self, size: int) -> State:
        return {}

    def apply(self, updates: Tensor, weights: Tensor, state: State) -> tuple[Tensor, State]:
        shares(updates, weights)
        rows = finite_rows(updates)
        chosen = rows[ranked(updates[rows])[: nearest_count(len(rows))]].sort().values
        mean = weighted_sum(updates[chosen], torch.full((len(chosen),), 1 / len(chosen), device=updates.device))
        return self.lr * mean, state


def nearest_count(clients: int) -> int:
    """n - f - 2, and at least one."""
    faulty = max(0, (clients - 3) // 2)
    return max(1, clients - faulty - 2)


def ranked(updates: Tensor) -> Tensor:
    """Row numbers from the lowest score to the highest."""
    products = inner_products(updates)
    if len(updates) == 1:
        return torch.zeros(1, dtype=torch.int64, device=updates.device)
    distances = squared_distances(products).fill_diagonal_(torch.inf)
    scores = distances.topk(nearest_count(len(updates)), dim=1, largest=False).values.sort(dim=1).values.sum(dim=1)
    by_length = products.diagonal().argsort(stable=True)
    return by_length[scores[by_length].argsort(stable=True)]
