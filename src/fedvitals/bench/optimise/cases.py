"""The jobs of the optimisation bench: tutorial 153's federation, with one optimisation a case, and a deep model.

A case is a name and the keys of the job that it changes, so a further optimisation is one more entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedvitals.train.job import Job

PLAIN = "nothing"
SITES, NO_ROUNDS = "sites far apart: rounds", "sites far apart: no rounds"
DEEP_PLAIN = "24 layers: nothing"
CODEC = "feedback(topk:0.1 | quantize:8 | entropy)"

# 10 clients of 200 rows, 64 features, two layers of 128, SGD with momentum and clipping, 30 rounds.
TUTORIAL: Mapping[str, Any] = {
    "name": "tutorial-153",
    "data.source": "synthetic",
    "data.partition": "natural",
    "data.clients": 10,
    "data.features": 64,
    "data.holdout": 0.0,
    "model.hidden": [128, 128],
    "train.clients_per_round": 10,
    "train.lr": 0.01,
    "train.momentum": 0.9,
    "train.clip": 1.0,
    "train.evaluate_every": 30,
    "execute.executor": "sequential",
    "execute.workers": 1,
}
# One client with one batch of 2,048 rows; its memory is what is looked at.
DEEP: Mapping[str, Any] = {
    "name": "deep",
    "data.source": "synthetic",
    "data.partition": "natural",
    "data.clients": 1,
    "data.rows": 2048,
    "data.features": 64,
    "data.holdout": 0.0,
    "model.hidden": [512] * 24,
    "model.norm": "group",
    "train.rounds": 6,
    "train.clients_per_round": 1,
    "train.epochs": 1,
    "train.batch_size": 2048,
    "train.evaluate_every": 6,
    "execute.executor": "sequential",
}

_ACCUMULATE = {"train.batch_size": 8, "train.accumulate": 4}
_TOGETHER = {"execute.executor": "vectorised"}
_PRUNE = {"server.prune": 0.5}
_SITES = {"execute.clock": "virtual", "network.profile": "cross-silo"}
_SPARSE = {"codec.up": CODEC}
CASES: Mapping[str, Mapping[str, Any]] = {
    PLAIN: {},
    "clients as one batch": _TOGETHER,
    "accumulate 4 x 8": _ACCUMULATE,
    "checkpoint": {"train.checkpoint": True},
    "bf16": {"train.precision": "bf16"},
    "bf16, unmeasured": {"train.precision": "bf16", "execute.measure": False},
    "prune half": _PRUNE,
    "quantize:8 both ways": {"codec.up": "quantize:8", "codec.down": "quantize:8"},
    "topk, quantised, with feedback": _SPARSE,
    SITES: _SITES,
    # As many updates as 30 rounds of 10 clients have.
    NO_ROUNDS: {
        **_SITES,
        "server.mode": "async",
        "server.buffer": 5,
        "server.concurrency": 10,
        "train.rounds": 60,
        "train.evaluate_every": 60,
    },
    "all that save memory and bytes": {**_ACCUMULATE, "train.checkpoint": True, **_PRUNE, **_SPARSE},
    "all that pay here": {**_TOGETHER, **_PRUNE, **_SPARSE},
}
_QUARTER = {"train.batch_size": 512, "train.accumulate": 4}
DEEP_CASES: Mapping[str, Mapping[str, Any]] = {
    DEEP_PLAIN: {},
    "24 layers: checkpoint": {"train.checkpoint": True},
    "24 layers: accumulate 4 x 512": _QUARTER,
    "24 layers: both": {"train.checkpoint": True, **_QUARTER},
}
LOWER = {"24 layers: checkpoint": 0.4, "24 layers: accumulate 4 x 512": 0.5}  # shares of memory to be saved

# Cases whose accuracy is to be that of another. The deep model is at chance after its few steps: there it tells little.
SAME = {"accumulate 4 x 8": PLAIN, "checkpoint": PLAIN} | dict.fromkeys(LOWER, DEEP_PLAIN)


def jobs(quick: bool) -> dict[str, Job]:
    """Every case as a job; quick ones are smaller and train less."""
    short = {"train.rounds": 3} if quick else {}
    small = {"model.hidden": [128] * 12, "train.rounds": 1} if quick else {}
    few = [PLAIN, "accumulate 4 x 8", "bf16", "prune half"] if quick else list(CASES)
    tutorial = {name: Job().replaced({**TUTORIAL, **CASES[name], **short}) for name in few}
    return tutorial | {name: Job().replaced({**DEEP, **small, **changes}) for name, changes in DEEP_CASES.items()}
