"""Baseline: pfl-research, its FederatedAveraging on its SimulatedBackend in one process.

As its benchmarks do: tensors made once, central SGD at learning rate 1, averaged by datapoints, no local evaluation.
pfl caches each user's batches and does not shuffle them; rows are dealt in random order, so nobody gains by that. Its
first iteration always evaluates every user: it is the warm-up round, and a second `run` carries on from there.
"""

from __future__ import annotations

import functools
import os
import time
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedvitals.bench.baselines.command import main
from fedvitals.bench.baselines.problem import SEED, Problem
from fedvitals.bench.baselines.protocol import accuracy_on_test


class PflResearch:
    name = "pfl-research"

    def available(self) -> str | None:
        if find_spec("pfl") is None:
            return "the package 'pfl' is not installed: pip install 'pfl[pytorch]'"
        return None

    def prepare(self, problem: Problem) -> None:
        os.environ.setdefault("PFL_PYTORCH_DEVICE", "cpu")  # where the others run
        import numpy as np
        from pfl.data import FederatedDataset
        from pfl.data.pytorch import PyTorchTensorDataset
        from pfl.data.sampling import get_user_sampler

        np.random.seed(SEED)  # pfl draws from the global generator
        self._problem = problem
        users = [
            PyTorchTensorDataset((torch.from_numpy(x), torch.from_numpy(y)), user_id=str(number))
            for number, (x, y) in enumerate(problem.clients)
        ]
        sampler = get_user_sampler("minimize_reuse", list(range(len(users))))  # the cohort is everybody, each once
        self._data = FederatedDataset(users.__getitem__, sampler)

    def run(self, rounds: int) -> float:
        from pfl.algorithm.base import NNAlgorithmParams
        from pfl.algorithm.federated_averaging import FederatedAveraging

        def algorithm_params(iterations: int) -> Any:
            return NNAlgorithmParams(
                central_num_iterations=iterations,
                evaluation_frequency=rounds + 2,
                train_cohort_size=len(self._problem.clients),
                val_cohort_size=None,
            )

        self._trained = _WithLoss(self._problem.model())
        model, backend, algorithm = self._model(), self._backend(), FederatedAveraging()
        run = functools.partial(
            algorithm.run,
            backend=backend,
            model=model,
            model_train_params=self._train_params(),
            send_metrics_to_platform=False,
        )
        run(algorithm_params(1))
        begun = time.perf_counter()
        run(algorithm_params(1 + rounds))
        return time.perf_counter() - begun

    def accuracy(self) -> float:
        return accuracy_on_test(self._trained.inner, self._problem)

    def _model(self) -> Any:
        from pfl.model.pytorch import PyTorchModel

        return PyTorchModel(
            self._trained,
            local_optimizer_create=functools.partial(torch.optim.SGD, momentum=self._problem.momentum),
            central_optimizer=torch.optim.SGD(self._trained.parameters(), lr=1.0),
        )

    def _backend(self) -> Any:
        from pfl.aggregate.simulate import SimulatedBackend
        from pfl.aggregate.weighting import WeightByDatapoints

        return SimulatedBackend(training_data=self._data, val_data=self._data, postprocessors=[WeightByDatapoints()])

    def _train_params(self) -> Any:
        from pfl.hyperparam import NNTrainHyperParams

        return NNTrainHyperParams(
            local_num_epochs=self._problem.epochs,
            local_learning_rate=self._problem.lr,
            local_batch_size=self._problem.batch,
        )


class _WithLoss(nn.Module):
    """The two methods that pfl asks of a model."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.inner(x)
        return answer

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.inner(x), y)

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        from pfl.metrics import Weighted

        return {"loss": Weighted(float(self.loss(x, y)) * len(y), len(y))}


if __name__ == "__main__":
    main(PflResearch())
