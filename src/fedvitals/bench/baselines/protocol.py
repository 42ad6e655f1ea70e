"""What a contestant does, and exactly what is timed.

`run` trains from the first weights: one round to warm up (first use of an optimizer imports 800 modules, workers load
their code, caches fill), then `rounds` rounds that are timed. A timed round is everything between two global models:
handing the model out, training all clients, averaging by rows. Set-up, the warm-up round and evaluation are not in it.
So every contestant's accuracy is that of `rounds` + 1 rounds from the same first weights.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import nn

from fedvitals.bench.baselines.problem import Problem
from fedvitals.train.evaluate import evaluate


class Baseline(Protocol):
    """One way to run a federated training."""

    name: str

    def available(self) -> str | None:
        """None when it can run here; else why not, and what to install."""

    def prepare(self, problem: Problem) -> None:
        """Take a problem and do what a user does once, before training."""

    def run(self, rounds: int) -> float:
        """Train from the first weights; the seconds of `rounds` rounds after one warm-up round."""

    def accuracy(self) -> float:
        """Test accuracy of the model that the last `run` gave."""


def accuracy_on_test(model: nn.Module, problem: Problem) -> float:
    """The share of test rows that the model gets right."""
    x, y = (torch.from_numpy(part) for part in problem.test)
    return evaluate(model, x, y, torch.arange(len(y)))[1]
