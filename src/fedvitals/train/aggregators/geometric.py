"""The point with the least sum of distances to all updates: Pillutla, Kakade and Harchaoui, "Robust Aggregation for
Federated Learning" (RFA), IEEE Transactions on Signal Processing 2022, by the smoothed Weiszfeld algorithm.

Every point on the way is a weighted mean of the updates, so its coefficients are enough: after one table of inner
products a step of the algorithm costs clients squared, not clients times values, and it can run until it stands still.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedvitals.train.aggregators.distances import inner_products
from fedvitals.train.aggregators.protocol import State, finite_rows, shares, weighted_sum


@dataclass(frozen=True, slots=True)
class GeometricMedian:
    """Weighted by samples, as in the paper: it resists while the bad ones hold less than half of them."""

    lr: float = 1.0
    smoothing: float = 1e-6  # nu of the paper: distances below it count as it
    most_steps: int = 200
    still: float = 1e-6  # a move of so little of the median distance is standing still

    def init(self, size: int) -> State:
        return {}

    def apply(self, updates: Tensor, weights: Tensor, state: State) -> tuple[Tensor, State]:
        shares(updates, weights)
        rows = finite_rows(updates)
        kept = updates[rows]
        coefficients = self._coefficients(inner_products(kept), shares(kept, weights[rows]).to(torch.float64))
        return self.lr * weighted_sum(kept, coefficients.to(kept.dtype)), state

    def _coefficients(self, products: Tensor, share: Tensor) -> Tensor:
        current = share
        for _ in range(self.most_steps):
            along = products @ current
            squared = products.diagonal() - 2 * along + current @ along
            distances = squared.clamp(min=self.smoothing**2).sqrt()
            pull = share / distances
            moved = pull / pull.sum()
            change = moved - current
            current = moved
            # The median distance, because a far outlier would make any move look small.
            if float(change @ products @ change) <= float(self.still * distances.median()) ** 2:
                break
        return current
