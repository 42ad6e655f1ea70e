"""What an aggregator does: a cohort's updates in, one step of the global model out.

Updates are differences (local minus global weights), stacked as [clients, values] float32; the step is added to the
global weights. An aggregator is a frozen value without memory of its own: what it remembers from round to round is a
`State`, a plain dictionary of tensors that can be kept as a blob and handed in again, so that a replayed round is the
same round. Nothing but the arguments has a say in the result: no randomness, no clock, no thread count.

Rows that are not finite: the averaging family passes them on, because that is what averaging does and whoever records
the run must see it. The robust ones leave the whole row out, and refuse a round in which no finite row is left.
"""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from fedvitals.errors import TrainingError

State = dict[str, Tensor]


@runtime_checkable
class Aggregator(Protocol):
    """One way to aggregate."""

    def init(self, size: int) -> State:
        """What there is to remember before the first round of a model with `size` values."""

    def apply(self, updates: Tensor, weights: Tensor, state: State) -> tuple[Tensor, State]:
        """The step [values] of this round, and what to remember. Arguments are left as they were."""


def shares(updates: Tensor, weights: Tensor) -> Tensor:
    """Each client's share of the samples, after a look at the shapes; TrainingError when there is nothing to share."""
    if updates.dim() != 2 or weights.shape != updates.shape[:1]:
        raise TrainingError(
            f"updates must be [clients, values] with a weight each; found {list(updates.shape)} and "
            f"{list(weights.shape)} weights"
        )
    if len(updates) == 0:
        raise TrainingError("there is no update to aggregate: no client of this round answered with one")
    exact = weights.to(torch.float64)
    total = float(exact.sum())
    if not (0 < total < math.inf) or float(exact.min()) < 0:
        raise TrainingError(f"the clients' sample counts cannot be weights: their sum is {total:g}; counts are >= 0")
    return (exact / total).to(updates.dtype)


def weighted_sum(updates: Tensor, coefficients: Tensor) -> Tensor:
    """One matrix-vector product. Contiguous first: the order of summation may follow the memory's layout."""
    return torch.mv(updates.contiguous().T, coefficients)


def finite_rows(updates: Tensor) -> Tensor:
    """Indexes of the rows without NaN and infinities; TrainingError when there is none."""
    rows = updates.isfinite().all(dim=1).nonzero().flatten()
    if len(rows) == 0:
        raise TrainingError(f"all {len(updates)} updates of this round hold values that are not finite")
    return rows
