"""Baseline: the loop of federated learning tutorials. A deep copy of the model and a shuffling DataLoader a client, the
loss fetched at every step, state dicts averaged by samples.
"""

from __future__ import annotations

import copy
import time

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from fedvitals.bench.baselines.command import main
from fedvitals.bench.baselines.problem import SEED, Problem
from fedvitals.bench.baselines.protocol import accuracy_on_test


class DataLoaderLoop:
    name = "DataLoader loop"

    def available(self) -> str | None:
        return None

    def prepare(self, problem: Problem) -> None:
        self._problem = problem
        self._data = [TensorDataset(torch.from_numpy(x), torch.from_numpy(y)) for x, y in problem.clients]

    def run(self, rounds: int) -> float:
        self._global = self._problem.model()
        generator = torch.Generator().manual_seed(SEED)
        self._round(generator)
        begun = time.perf_counter()
        for _ in range(rounds):
            self._round(generator)
        return time.perf_counter() - begun

    def accuracy(self) -> float:
        return accuracy_on_test(self._global, self._problem)

    def _round(self, generator: torch.Generator) -> None:
        states = [self._trained(data, generator) for data in self._data]
        average = {
            key: sum(
                ((len(data) / self._problem.rows) * state[key] for data, state in zip(self._data, states, strict=True)),
                start=torch.zeros(()),
            )
            for key in states[0]
        }
        self._global.load_state_dict(average)

    def _trained(self, data: TensorDataset, generator: torch.Generator) -> dict[str, Tensor]:
        local = copy.deepcopy(self._global)
        optimizer = torch.optim.SGD(local.parameters(), lr=self._problem.lr, momentum=self._problem.momentum)
        loader = DataLoader(data, batch_size=self._problem.batch, shuffle=True, generator=generator)
        total_loss = 0.0
        for _ in range(self._problem.epochs):
            for x, y in loader:
                optimizer.zero_grad()
                loss = F.cross_entropy(local(x), y)
                loss.backward()  # type: ignore[no-untyped-call]  # torch has it so
                optimizer.step()
                total_loss += loss.item()
        return local.state_dict()


if __name__ == "__main__":
    main(DataLoaderLoop())
