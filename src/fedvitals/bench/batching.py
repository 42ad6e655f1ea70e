"""When it pays to train many clients in one call: what `auto` picks comes from here.

Clients per second on one core, vectorised by the compiled trainer and by torch against sequential, unwatched, for
models of several kinds and sizes.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from fedvitals.bench.table import Row, spread
from fedvitals.capture.nothing import NoRun
from fedvitals.train.engine import Training
from fedvitals.train.job import Job
from fedvitals.train.threads import one_thread

PICTURES = {"source": "fedvitals.bench.rows:pictures", "clients": 100}
SENTENCES = {"source": "fedvitals.bench.rows:sentences", "clients": 100}
SCANS = {"source": "digits", "clients": 20}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
    "mlp 64-64-10": (SCANS, {"kind": "mlp"}, 32),
    "mlp 784-64-10": (PICTURES, {"kind": "mlp"}, 32),
    "mlp 784-512-512-10": (PICTURES, {"kind": "mlp", "hidden": [512, 512]}, 32),
    "mlp 784-1024-1024-10": (PICTURES, {"kind": "mlp", "hidden": [1024, 1024]}, 32),
    "cnn 8x8, batch 10": (SCANS, {"kind": "cnn", "kernel": 3}, 10),
    "cnn 8x8, batch 32": (SCANS, {"kind": "cnn", "kernel": 3}, 32),
    "cnn 28x28, batch 10": (PICTURES, {"kind": "cnn"}, 10),
    "cnn 28x28, batch 32": (PICTURES, {"kind": "cnn"}, 32),
    "cnn 28x28, 32 and 64 channels": (PICTURES, {"kind": "cnn", "channels": [32, 64]}, 32),
    "gru 32, 20 tokens": (SENTENCES, {"kind": "gru", "hidden": [32]}, 32),
    "gru 64, 20 tokens": (SENTENCES, {"kind": "gru", "hidden": [64]}, 32),
}
COHORT = 20


WAYS = {"compiled": True, "torch": False}


def run(quick: bool = False) -> list[Row]:
    """Ratios, a row a model and a way; above 1 many clients in one call pay."""
    repeats = 1 if quick else 7
    names = list(CASES)[:1] if quick else list(CASES)
    with one_thread():
        return [row for name in names for row in _case(name, repeats)]


def _case(name: str, repeats: int) -> list[Row]:
    data, model, batch = CASES[name]
    one_by_one = _prepared(data, model, batch, "sequential")
    together = {way: _prepared(data, model, batch, "vectorised", compiled) for way, compiled in WAYS.items()}
    ratios: dict[str, list[float]] = {way: [] for way in WAYS if way == "torch" or "compiled" in together[way].why}
    for training in (one_by_one, *together.values()):
        _seconds(training)
    for _ in range(repeats):
        alone_s = _seconds(one_by_one)
        for way, found in ratios.items():
            found.append(alone_s / _seconds(together[way]))
    return [Row(name, f"vectorised by {way} / sequential", *spread(found), "times") for way, found in ratios.items()]


def _prepared(
    data: dict[str, Any], model: dict[str, Any], batch: int, executor: str, compiled: bool = True
) -> Training:
    train = {"clients_per_round": COHORT, "epochs": 1, "batch_size": batch}
    execute = {"executor": executor, "workers": 1, "compiled": compiled}
    return Training.prepare(Job.from_dict({"data": data, "model": model, "train": train, "execute": execute}))


def _seconds(training: Training) -> float:
    """Of the clients alone: what the server does with what they learnt is the same for all."""
    works = training.plan(list(range(COHORT)), Counter(), 0, NoRun())
    began = time.perf_counter()
    for _ in training.executor.run(works, training.model.weights, {}):
        pass
    return time.perf_counter() - began
