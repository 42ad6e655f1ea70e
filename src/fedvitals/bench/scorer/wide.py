"""Lessons of many worlds: cheap trainings, each of other rows, another model and another way to train.

What a scorer is to bear is drawn wide: clients of half a dozen rows beside such of hundreds, one batch a round, rates
that are nearly too high, momentum, models of a few hundred weights or of tens of thousands.
"""

from __future__ import annotations

import math
import random
from typing import Any

from fedvitals.bench.scorer.mixes import OF_TOKENS, WIDE, Lesson, with_fault
from fedvitals.bench.scorer.worlds import FAMILIES

OFTEN = {"tokens": 0.4, "iris": 0.5, "wine": 0.5, "cancer": 0.5, "cifar": 0.7}  # the others: 1
PICTURES = ("patches", "cifar", "waves")  # that a cnn can read
PARTITIONS = ("iid", "iid", "d1.0", "d0.3", "d0.1", "quantity", "shards", "natural", "natural", "natural")
MOST_ROWS = 6_000  # of all clients: a lesson should take less than a second
HIDDEN = ([16], [32], [64], [64], [128], [64, 32], [32, 32, 16])


def lesson(number: int) -> Lesson:
    """The lesson of this number, which gives the world its number too."""
    draw = random.Random(number)  # noqa: S311  (no secret: the same number must give the same lesson)
    family = draw.choices(FAMILIES, [OFTEN.get(name, 1.0) for name in FAMILIES])[0]
    clients, partition = draw.choice([10, 14, 20, 30, 30, 50, 100, 100]), draw.choice(PARTITIONS)
    rows = min(int(_between(draw, 8, 130)), MOST_ROWS // clients)
    source = f"fedvitals.bench.scorer.worlds:{family}_{number}"
    least = draw.choice([5, 8])
    data = {
        "source": source,
        "clients": clients,
        "rows": max(rows, least),
        "min_rows": least,
        **_dealt(draw, partition),
    }
    half = draw.random() < 0.35
    train = {"rounds": draw.choice([16, 20, 24, 30]), "clients_per_round": max(5, clients // 2) if half else clients}
    job: dict[str, Any] = {"seed": number, "name": "lesson", "data": data, "model": _model(draw, family)}
    job |= {"train": train | _training(draw, family), "execute": {"workers": 1}}
    if draw.random() < 0.1:
        job["server"] = {"aggregator": draw.choice(["fedavgm", "median", "geometric-median", "trimmed-mean"])}
    kind, from_round = with_fault(draw, WIDE, family, partition, clients, job)
    return Lesson(number, family, partition, kind, from_round, job)


def _between(draw: random.Random, low: float, high: float) -> float:
    """Each power of two as often as the next."""
    return math.exp(draw.uniform(math.log(low), math.log(high)))


def _dealt(draw: random.Random, partition: str) -> dict[str, Any]:
    if partition.startswith("d"):
        return {"partition": "dirichlet", "alpha": float(partition[1:])}
    if partition == "quantity":
        return {"partition": partition, "sigma": draw.choice([0.5, 1.0, 1.5])}
    return {"partition": partition}


def _model(draw: random.Random, family: str) -> dict[str, Any]:
    kind = draw.random()
    if family in OF_TOKENS or (family == "waves" and kind < 0.02):
        return {"kind": "gru", "hidden": [draw.choice([8, 16, 32])], "embedding": draw.choice([4, 8])}
    if family in PICTURES and kind < 0.45:
        return {
            "kind": "cnn",
            "channels": draw.choice([[4], [4, 8], [8, 16]]),
            "kernel": draw.choice([3, 3, 5]),
            "hidden": draw.choice([[16], [32], [64]]),
        }
    if kind > 0.88:
        return {"kind": "logistic"}
    found: dict[str, Any] = {"kind": "mlp", "hidden": draw.choice(HIDDEN)}
    if draw.random() < 0.1:
        found["norm"] = draw.choice(["group", "batch"])
    if draw.random() < 0.07:
        found["dropout"] = 0.2
    return found


def _training(draw: random.Random, family: str) -> dict[str, Any]:
    rate = _between(draw, 0.3, 1.5) if family in OF_TOKENS else _between(draw, 0.02, 0.4)
    found: dict[str, Any] = {
        "epochs": draw.choice([1, 1, 2, 3, 5]),
        "batch_size": draw.choice([5, 8, 10, 16, 32, 64]),
        "lr": round(rate, 4),
    }
    if draw.random() < 0.12:
        found |= {"momentum": 0.9, "lr": round(0.15 * rate, 5)}
    if draw.random() < 0.12:
        found |= draw.choice([{"weight_decay": 1e-3}, {"clip": 1.0}, {"proximal": 0.1}])
    return found
