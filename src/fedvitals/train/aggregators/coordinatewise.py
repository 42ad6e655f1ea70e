"""Robust statistics of each value by itself: Yin et al., "Byzantine-Robust Distributed Learning: Towards Optimal
Statistical Rates", ICML 2018.

Sample counts are not used: they are the clients' own word, and a claimed million would undo the robustness.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedvitals.train.aggregators.protocol import State, finite_rows, shares

_BLOCK_VALUES = 2**22  # sorted at a time, so that a large model needs 16 MB more, not its size again

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Median:
    """The median of each value; of an even number of clients, the middle of the two in the middle."""

    lr: float = 1.0

    def init(self, size: int) -> State:
        return {}

    def apply(self, updates: Tensor, weights: Tensor, state: State) -> tuple[Tensor, State]:
        shares(updates, weights)
        return self.lr * _by_value(updates[finite_rows(updates)], _middle), state


@dataclass(frozen=True, slots=True)
class TrimmedMean:
    """The mean of each value without the largest and the smallest `share` of clients: at least one on each side from
    three clients on, none below."""

    lr: float = 1.0
    share: float = 0.1

    def init(self, size: int) -> State:
        return {}

    def apply(self, updates: Tensor, weights: Tensor, state: State) -> tuple[Tensor, State]:
        shares(updates, weights)
        kept = updates[finite_rows(updates)]
        cut = max(1, int(self.share * len(kept))) if len(kept) >= 3 else 0
        return self.lr * _by_value(kept, lambda ordered: _mean_of(ordered[cut : len(ordered) - cut])), state


def _by_value(updates: Tensor, reduce: Callable[[Floats], Floats]) -> Tensor:
    """`reduce` of the sorted columns. By numpy, whose sort of short columns is ten times torch's."""
    columns = max(1, _BLOCK_VALUES // len(updates))
    blocks = [
        torch.from_numpy(reduce(np.sort(block.cpu().numpy(), axis=0))) for block in torch.split(updates, columns, dim=1)
    ]
    return torch.cat(blocks).to(updates.device)


def _middle(ordered: Floats) -> Floats:
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return _mean_of(np.stack((low, high)))


def _mean_of(rows: Floats) -> Floats:
    """In float64, so that no sum of finite float32 overflows, and the mean stays between the smallest and largest."""
    mean: Floats = rows.mean(axis=0, dtype=np.float64).astype(np.float32)
    return mean
