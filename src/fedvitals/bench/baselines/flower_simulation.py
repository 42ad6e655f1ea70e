"""Baseline: Flower's simulation runtime (Ray), its FedAvg, one actor a core.

As a careful user writes it: an actor makes the rows once and keeps them, the model is reused, batches are made by
index, nothing but the weights travels, no federated evaluation. A timed round ends when Flower has aggregated it: the
instants are taken in the strategy's own `train_metrics_aggr_fn`, so Ray's start and the first round (actors importing
torch) are left out. A round in which any client failed is an error here; Flower itself would go on in silence.
"""

from __future__ import annotations

import os
import time
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from fedvitals.bench.baselines.command import main
from fedvitals.bench.baselines.local_training import train_locally
from fedvitals.bench.baselines.problem import SEED, Problem, named
from fedvitals.bench.baselines.protocol import accuracy_on_test
from fedvitals.errors import TrainingError
from fedvitals.randomness import torch_seed


class FlowerSimulation:
    name = "Flower simulation"

    def available(self) -> str | None:
        missing = [package for package in ("flwr", "ray") if find_spec(package) is None]
        return f"{' and '.join(missing)} missing: pip install 'flwr[simulation]'" if missing else None

    def prepare(self, problem: Problem) -> None:
        if named(problem.name) is not problem:
            raise TrainingError(f"Flower's workers make a problem by its name, and {problem.name!r} is not one of ours")
        self._problem = problem
        os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

    def run(self, rounds: int) -> float:
        from flwr.simulation import run_simulation

        server = _Server(self._problem, rounds + 1)
        run_simulation(
            server_app=server.app(),
            client_app=client_app(self._problem.name),
            num_supernodes=len(self._problem.clients),
            backend_config={
                "init_args": {"num_cpus": len(os.sched_getaffinity(0)), "log_to_driver": False},
                "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            },
        )
        self._model = server.model()
        return server.seconds()

    def accuracy(self) -> float:
        return accuracy_on_test(self._model, self._problem)


class _Server:
    """Flower's server side, with a note of when each round was over and how many clients it had."""

    def __init__(self, problem: Problem, rounds: int) -> None:
        self._problem, self._rounds = problem, rounds
        self._ended: list[float] = []
        self._answers: list[int] = []
        self._state: dict[str, Tensor] = {}

    def app(self) -> Any:
        from flwr.app import ArrayRecord
        from flwr.serverapp import ServerApp

        app = ServerApp()

        @app.main()  # type: ignore[untyped-decorator]  # flwr is not installed where this is checked
        def train(grid: Any, context: Any) -> None:
            first = ArrayRecord(self._problem.model().state_dict())
            result = self._strategy().start(grid=grid, initial_arrays=first, num_rounds=self._rounds)
            self._state = result.arrays.to_torch_state_dict()

        return app

    def _strategy(self) -> Any:
        from flwr.serverapp.strategy import FedAvg

        everyone = len(self._problem.clients)
        return FedAvg(
            fraction_train=1.0,
            fraction_evaluate=0.0,
            min_train_nodes=everyone,
            min_available_nodes=everyone,
            train_metrics_aggr_fn=self._round_over,
        )

    def _round_over(self, replies: list[Any], _: str) -> Any:
        from flwr.app import MetricRecord

        self._ended.append(time.perf_counter())
        self._answers.append(len(replies))
        return MetricRecord()

    def seconds(self) -> float:
        expected = [len(self._problem.clients)] * self._rounds
        if self._answers != expected:
            raise TrainingError(f"Flower's rounds had {self._answers} clients instead of {expected}")
        return self._ended[-1] - self._ended[0]

    def model(self) -> nn.Module:
        model = self._problem.model()
        model.load_state_dict(self._state)
        return model


def client_app(problem: str) -> Any:
    """Flower's client side. Ray pickles it for every message, so it holds a name and nothing more."""
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.train()  # type: ignore[untyped-decorator]  # flwr is not installed where this is checked
    def train(message: Any, context: Any) -> Any:
        return answer(message, int(context.node_config["partition-id"]), problem)

    return app


def answer(message: Any, client: int, name: str) -> Any:
    """Train one client on the weights that came and send back its own."""
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

    problem, model, data = _kept(name)
    x, y = data[client]
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    server_round = int(message.content["config"]["server-round"])
    generator = torch.Generator().manual_seed(torch_seed(SEED, "flower", client, server_round))
    train_locally(model, x, y, problem, generator)
    records = {
        "arrays": ArrayRecord(model.state_dict()),
        "metrics": MetricRecord({"num-examples": len(y)}),
    }
    return Message(content=RecordDict(records), reply_to=message)


@lru_cache(maxsize=1)
def _kept(name: str) -> tuple[Problem, nn.Module, list[tuple[Tensor, Tensor]]]:
    """What an actor makes once: the problem, a model to reuse, and every client's tensors."""
    torch.set_num_threads(1)
    problem = named(name)
    return problem, problem.model(), [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in problem.clients]


if __name__ == "__main__":
    # Under its own name: what belongs to __main__ would be pickled whole, and its caches would not last.
    from fedvitals.bench.baselines import flower_simulation

    main(flower_simulation.FlowerSimulation())
