"""Baseline: a lean hand-written loop. Batches by index, one local model reused, the average summed up on the way."""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn

from fedvitals.bench.baselines.command import main
from fedvitals.bench.baselines.local_training import train_locally
from fedvitals.bench.baselines.problem import SEED, Problem
from fedvitals.bench.baselines.protocol import accuracy_on_test


class PlainLoop:
    name = "plain loop"

    def available(self) -> str | None:
        return None

    def prepare(self, problem: Problem) -> None:
        self._problem = problem
        self._data = [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in problem.clients]
        self._shares = [len(y) / problem.rows for _, y in problem.clients]

    def run(self, rounds: int) -> float:
        self._global, local = self._problem.model(), self._problem.model()
        generator = torch.Generator().manual_seed(SEED)
        self._round(local, generator)
        begun = time.perf_counter()
        for _ in range(rounds):
            self._round(local, generator)
        return time.perf_counter() - begun

    def accuracy(self) -> float:
        return accuracy_on_test(self._global, self._problem)

    def _round(self, local: nn.Module, generator: torch.Generator) -> None:
        start = [parameter.detach() for parameter in self._global.parameters()]
        trained = [parameter.detach() for parameter in local.parameters()]
        total: list[Tensor] = [torch.zeros_like(parameter) for parameter in start]
        for (x, y), share in zip(self._data, self._shares, strict=True):
            torch._foreach_copy_(trained, start)
            train_locally(local, x, y, self._problem, generator)
            torch._foreach_add_(total, trained, alpha=share)
        torch._foreach_copy_(start, total)


if __name__ == "__main__":
    main(PlainLoop())
