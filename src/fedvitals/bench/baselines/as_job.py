"""The engine bench's problems as jobs of our own engine: same rows, same clients, same model, same optimizer."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedvitals.bench.baselines.problem import Problem, named
from fedvitals.train.job import Job


def job_of(problem: Problem, rounds: int) -> Job:
    """Everyone takes part in each of `rounds` rounds; the first weights are the engine's own."""
    model: dict[str, Any] = {"kind": "mlp", "hidden": [64]}
    if problem.name.startswith("cnn"):
        kernel = 3 if problem.test[0].shape[-1] < 28 else 5
        model = {"kind": "cnn", "channels": [8, 16], "kernel": kernel, "hidden": []}
    function = problem.name.replace("-", "_")
    return Job.from_dict(
        {
            "name": problem.name,
            "data": {
                "source": f"{__name__}:{function}",
                "partition": "natural",
                "clients": len(problem.clients),
                "holdout": 0.0,
                "scale": "none",
            },
            "model": model,
            "train": {
                "rounds": rounds,
                "clients_per_round": len(problem.clients),
                "epochs": problem.epochs,
                "batch_size": problem.batch,
                "lr": problem.lr,
                "momentum": problem.momentum,
            },
        }
    )


def tutorial() -> dict[str, Any]:
    return _arrays(named("tutorial"))


def digits() -> dict[str, Any]:
    return _arrays(named("digits"))


def cnn_batch10() -> dict[str, Any]:
    return _arrays(named("cnn-batch10"))


def cnn_batch32() -> dict[str, Any]:
    return _arrays(named("cnn-batch32"))


def cnn_8x8() -> dict[str, Any]:
    return _arrays(named("cnn-8x8"))


def _arrays(problem: Problem) -> dict[str, Any]:
    # Grey images go as [rows, height, width]: a job's source has no axis for their one channel.
    shape = problem.test[0].shape[-2:] if problem.test[0].ndim == 4 else problem.test[0].shape[1:]
    return {
        "x_train": np.concatenate([x for x, _ in problem.clients]).reshape(-1, *shape),
        "y_train": np.concatenate([y for _, y in problem.clients]),
        "x_test": problem.test[0].reshape(-1, *shape),
        "y_test": problem.test[1],
        "client": np.repeat(np.arange(len(problem.clients)), [len(y) for _, y in problem.clients]),
    }
