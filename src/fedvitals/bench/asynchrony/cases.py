"""The clients, and the ways to train them.

Every client has equally many rows of two of thirty classes (shards), so that what it takes follows from its device
alone: a second in the median, log-normal with sigma 1.0, whatever it holds, and one participation in ten never comes
back. Deadlines are percentiles of that.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedvitals.randomness import stream
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
    rounds: int = 120
    updates: int = 12_000  # of an asynchronous training
    test_rows: int = 2000
    deadlines_s: tuple[float, ...] = (0.28, 0.51, 1.0, 1.96, 3.6)  # percentiles 10, 25, 50, 75 and 90 of the delays


FULL = Size()
QUICK = Size(clients=100, at_work=20, needed=15, rounds=12, updates=400, test_rows=300, deadlines_s=(1.0, 3.6))
UPDATES_JUDGED = 40  # between two evaluations of an asynchronous training


class Way(NamedTuple):
    """One way to train: the keys that make it. Synchronous ones are tried with every deadline."""

    name: str
    keys: Mapping[str, Any]
    buffer: int = 0  # 0: synchronous
    length: float = 1.0  # how many times the rounds or updates of the size


def _stopped_at(deadline_s: float) -> dict[str, Any]:
    return {"server.deadline_s": deadline_s, "server.late": "stop"}


LATE_USED = {"server.deadline_s": FULL.deadlines_s[0], "server.late": "use"}
RANDOM = Way("synchronous, random", {"server.lr": 2.0})
OORT = Way("synchronous, oort", {"server.lr": 2.0, "server.selection": "oort"}, length=2.0)  # its rounds are shorter
REMEMBERED = {"server.remember": True}
RANDOM_MEMORY = Way("synchronous, random, with memory", {**REMEMBERED, "server.lr": 4.0})
FEDBUFF = Way("fedbuff", LATE_USED, 10)
FEDBUFF_MEMORY = Way("fedbuff with memory", {**LATE_USED, **REMEMBERED, "server.lr": 2.0}, 10)
PISCES = Way("fedbuff, pisces", {**LATE_USED, "server.selection": "pisces"}, 10)
FEDASYNC = Way("fedasync", {"server.aggregator": "fedasync"}, 1, length=1 / 3)
# Strict: never more at work than the server waits for, late ones included.
STRICT = Way("strict fedbuff", {}, 10)
STOPPED = Way("strict fedbuff, late ones stopped", _stopped_at(1.96), 10)
MEMORY = Way("strict fedbuff with memory", {**REMEMBERED, "server.lr": 2.0}, 10)
MEMORY_STOPPED = Way(
    "strict fedbuff with memory, late ones stopped", {**REMEMBERED, **_stopped_at(3.6), "server.lr": 2.0}, 10
)
MEMORY_PISCES = Way(
    "strict fedbuff with memory, pisces",
    {**REMEMBERED, "server.selection": "pisces", "server.lr": 4.0, "train.lr": 0.1},
    10,
)
SYNCHRONOUS = (RANDOM, RANDOM_MEMORY, OORT)
WITHOUT_ROUNDS = (FEDASYNC, STRICT, STOPPED, MEMORY, MEMORY_STOPPED, MEMORY_PISCES, FEDBUFF, FEDBUFF_MEMORY, PISCES)
WAYS = SYNCHRONOUS + WITHOUT_ROUNDS


def job(size: Size, seed: int, devices: str, way: Way, deadline_s: float = 0.0) -> Job:
    """All of them alike but for the way. Evaluations come about as often for the same number of updates."""
    keys: dict[str, Any] = {
        "name": "async-bench",
        "seed": seed,
        "data.source": "synthetic",
        "data.partition": "shards",
        "data.clients": size.clients,
        "data.classes": 30,
        "data.features": 64,
        "data.rows": 40,
        "data.test_rows": size.test_rows,
        "model.hidden": [32],
        "train.epochs": 2,
        "train.batch_size": 16,
        "train.lr": 0.3,
        "execute.clock": "virtual",
        "execute.executor": "vectorised",
        "execute.workers": 1,
        "network.profile": devices,
    }
    keys |= _asynchronous(size, way) if way.buffer else _synchronous(size, way, deadline_s)
    return Job().replaced({**keys, **way.keys})


def _synchronous(size: Size, way: Way, deadline_s: float) -> dict[str, Any]:
    return {
        "train.rounds": round(way.length * size.rounds),
        "train.clients_per_round": size.needed,
        "server.over_select": 1.3,
        "server.deadline_s": deadline_s,
    }


def _asynchronous(size: Size, way: Way) -> dict[str, Any]:
    return {
        "train.rounds": round(way.length * size.updates) // way.buffer,
        "train.evaluate_every": max(1, UPDATES_JUDGED // way.buffer),
        "server.mode": "async",
        "server.buffer": way.buffer,
        "server.concurrency": size.at_work,
    }


def write_devices(path: Path, size: Size, seed: int) -> NDArray[np.float64]:
    """A file of devices for these clients; gives their delays in seconds."""
    delays_s: NDArray[np.float64] = MEDIAN_S * np.exp(SIGMA * stream(seed, "bench delays").normal(size=size.clients))
    lines = [
        f"{client},{1000 * delay / STEPS:.6f},1,1000,{NEVER_BACK}" for client, delay in enumerate(delays_s.tolist())
    ]
    path.write_text("\n".join(["client,step_ms,latency_ms,gflop_per_s,dropout", *lines]) + "\n", encoding="utf-8")
    return delays_s
