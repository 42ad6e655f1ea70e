"""The mean of the global models of the last rounds, which swings less than any of them and is mostly better.

Polyak and Juditsky, "Acceleration of Stochastic Approximation by Averaging", 1992; as a running mean that forgets. It
stays at the server: clients go on from the last model, and nothing more is sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class RunningMean:
    """Of models [size], the last ones most: each step keeps a share of the mean. While there were few it is the plain
    mean of all, so that the first model soon counts no more than others."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._models = 0
        self._mean = self._before = torch.zeros(0)

    def add(self, weights: Tensor) -> None:
        share = min(self._share, self._models / (self._models + 1))
        self._before = self._mean
        self._mean = torch.lerp(weights, self._mean, share) if self._models else weights.clone()
        self._models += 1

    def roll_back(self) -> None:
        """Without the last model."""
        self._mean = self._before
        self._models = max(self._models - 1, 0)

    def put_into(self, weights: Tensor) -> None:
        """The mean in place of these weights; they stay where there is none yet."""
        if self._models:
            weights.copy_(self._mean)

    @contextmanager
    def inside(self, weights: Tensor) -> Iterator[None]:
        """The mean in place of these weights, for as long as it is looked at."""
        last = weights.clone()
        self.put_into(weights)
        try:
            yield
        finally:
            weights.copy_(last)
