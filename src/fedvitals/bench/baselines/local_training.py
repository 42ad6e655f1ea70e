"""One client's training by plain index batches: what a fast hand-written loop does, and the client of Flower's app."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedvitals.bench.baselines.problem import Problem


def train_locally(model: nn.Module, x: Tensor, y: Tensor, problem: Problem, generator: torch.Generator) -> None:
    """Train this model in place on one client's rows, shuffled anew each epoch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=problem.lr, momentum=problem.momentum)
    for _ in range(problem.epochs):
        for rows in torch.split(torch.randperm(len(y), generator=generator), problem.batch):
            optimizer.zero_grad()
            F.cross_entropy(model(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]  # torch has it so
            optimizer.step()
