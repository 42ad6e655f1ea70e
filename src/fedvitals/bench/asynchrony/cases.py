"""The clients, and the ways to train them.

Every client has equally many rows of two of ten classes (shards), so that what it takes follows from its device alone:
a second in the median, log-normal with sigma 1.0, and one participation in ten never comes back. In the first setting
slow clients tend to hold other classes than quick ones, because otherwise one could simply do without them: the rank of
a client's mean class and its delay have a correlation of 0.5. In the second they are independent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedvitals.randomness import stream
from fedvitals.train.build import build
from fedvitals.train.job import Job

SIGMA = 1.0
NEVER_BACK = 0.1
STEPS = 4  # of SGD a participation: 32 rows, twice, 16 at a time
MEDIAN_S = 1.0


class Size(NamedTuple):
    """How large a comparison is."""

    clients: int = 1000
    at_work: int = 100
    needed: int = 77  # of a round, so that 1.3 times as many are at work
    rounds: int = 100
    updates: int = 4000  # of an asynchronous training
    test_rows: int = 2000
    deadlines_s: tuple[float, ...] = (0.5, 1.0, 2.0, 3.0, 5.0)


FULL = Size()
QUICK = Size(clients=100, at_work=20, needed=15, rounds=12, updates=400, test_rows=300, deadlines_s=(1.0, 3.0))


class Setting(NamedTuple):
    """Whether slow clients are like the others."""

    name: str
    correlation: float


SETTINGS = (Setting("slow clients hold other classes", 0.5), Setting("slow clients hold the same", 0.0))


class Way(NamedTuple):
    """One way to train: the keys that make it. Synchronous ones are tried with every deadline."""

    name: str
    keys: Mapping[str, Any]
    buffer: int = 0  # 0: synchronous


RANDOM = Way("synchronous, random", {})
OORT = Way("synchronous, oort", {"server.selection": "oort"})
FEDBUFF = Way("fedbuff", {}, 5)
PISCES = Way("fedbuff, pisces", {"server.selection": "pisces"}, 5)
FEDASYNC = Way("fedasync", {"server.aggregator": "fedasync"}, 1)
OTHERS = (OORT, FEDBUFF, PISCES, FEDASYNC)


def job(size: Size, seed: int, devices: str, way: Way, deadline_s: float = 0.0) -> Job:
    """All of them alike but for the way. Evaluations come about as often for the same number of updates."""
    keys: dict[str, Any] = {
        "name": "async-bench",
        "seed": seed,
        "data.source": "synthetic",
        "data.partition": "shards",
        "data.clients": size.clients,
        "data.rows": 40,
        "data.test_rows": size.test_rows,
        "model.hidden": [32],
        "train.epochs": 2,
        "train.batch_size": 16,
        "train.lr": 0.1,
        "execute.clock": "virtual",
        "execute.executor": "vectorised",
        "execute.workers": 1,
        "network.profile": devices,
    }
    keys |= _asynchronous(size, way) if way.buffer else _synchronous(size, deadline_s)
    return Job().replaced({**keys, **way.keys})


def _synchronous(size: Size, deadline_s: float) -> dict[str, Any]:
    return {
        "train.rounds": size.rounds,
        "train.clients_per_round": size.needed,
        "server.over_select": 1.3,
        "server.deadline_s": deadline_s,
    }


def _asynchronous(size: Size, way: Way) -> dict[str, Any]:
    return {
        "train.rounds": size.updates // way.buffer,
        "train.evaluate_every": max(1, 20 // way.buffer),
        "server.mode": "async",
        "server.buffer": way.buffer,
        "server.concurrency": size.at_work,
    }


def write_devices(path: Path, size: Size, seed: int, correlation: float) -> NDArray[np.float64]:
    """A file of devices for these clients; gives their delays in seconds."""
    federation = build(job(size, seed, "none", FEDBUFF))
    classes = np.array([float(federation.y[rows].double().mean()) for rows in federation.train_rows])
    random = stream(seed, "bench delays")
    ranks = np.argsort(np.argsort(classes + 1e-9 * random.random(len(classes))))
    by_class = np.array([NormalDist().inv_cdf((rank + 0.5) / len(ranks)) for rank in ranks.tolist()])
    own = random.normal(size=len(ranks))
    logs = SIGMA * (correlation * by_class + math.sqrt(1.0 - correlation**2) * own)
    delays_s: NDArray[np.float64] = MEDIAN_S * np.exp(logs)
    lines = [
        f"{client},{1000 * delay / STEPS:.6f},1,1000,{NEVER_BACK}"
        for client, delay in zip(federation.clients, delays_s.tolist(), strict=True)
    ]
    path.write_text("\n".join(["client,step_ms,latency_ms,gflop_per_s,dropout", *lines]) + "\n", encoding="utf-8")
    return delays_s
