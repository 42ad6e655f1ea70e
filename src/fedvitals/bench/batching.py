"""When it pays to train clients as one batch: what `auto` picks comes from here.

Clients per second on one core, vectorised against sequential, unwatched, for models of several kinds and sizes.
"""

from __future__ import annotations

import time
from typing import Any

from fedvitals.bench.table import Row, spread
from fedvitals.capture.nothing import NoRun
from fedvitals.train.engine import Training
from fedvitals.train.hooks import NoHook
from fedvitals.train.job import Job
from fedvitals.train.progress import NoProgress
from fedvitals.train.threads import one_thread

PICTURES = {"source": "fedvitals.bench.rows:pictures", "clients": 100}
SENTENCES = {"source": "fedvitals.bench.rows:sentences", "clients": 100}
SCANS = {"source": "digits", "clients": 20}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
    "mlp 64-64-10": (SCANS, {"kind": "mlp"}, 32),
    "mlp 784-64-10": (PICTURES, {"kind": "mlp"}, 32),
    "mlp 784-1024-1024-10": (PICTURES, {"kind": "mlp", "hidden": [1024, 1024]}, 32),
    "cnn 8x8, batch 10": (SCANS, {"kind": "cnn", "kernel": 3}, 10),
    "cnn 8x8, batch 32": (SCANS, {"kind": "cnn", "kernel": 3}, 32),
    "cnn 28x28, batch 10": (PICTURES, {"kind": "cnn"}, 10),
    "cnn 28x28, batch 32": (PICTURES, {"kind": "cnn"}, 32),
    "gru 32, 20 tokens": (SENTENCES, {"kind": "gru", "hidden": [32]}, 32),
    "gru 64, 20 tokens": (SENTENCES, {"kind": "gru", "hidden": [64]}, 32),
}
COHORT = 20


def run(quick: bool = False) -> list[Row]:
    """Ratios, a row a model; above 1 a batch pays."""
    repeats, rounds = (1, 1) if quick else (7, 3)
    names = list(CASES)[:1] if quick else list(CASES)
    with one_thread():
        return [_case(name, repeats, rounds) for name in names]


def _case(name: str, repeats: int, rounds: int) -> Row:
    data, model, batch = CASES[name]
    trainings = [_prepared(data, model, batch, rounds, executor) for executor in ("sequential", "vectorised")]
    for training in trainings:
        _seconds(training)
    ratios = [_seconds(trainings[0]) / _seconds(trainings[1]) for _ in range(repeats)]
    return Row(name, "vectorised / sequential", *spread(ratios), "times")


def _prepared(data: dict[str, Any], model: dict[str, Any], batch: int, rounds: int, executor: str) -> Training:
    train = {"rounds": rounds, "clients_per_round": COHORT, "epochs": 1, "batch_size": batch, "evaluate_every": 1000}
    execute = {"executor": executor, "workers": 1}
    return Training.prepare(Job.from_dict({"data": data, "model": model, "train": train, "execute": execute}))


def _seconds(training: Training) -> float:
    began = time.perf_counter()
    training.rounds(NoRun(), NoHook(), NoProgress(), began)
    return time.perf_counter() - began
