"""What the scorer learns from: small trainings of many kinds, each a fixed function of its (even) number.

Digits, synthetic rows, MNIST by writer and Shakespeare by role, and then many worlds (`wide`); no data set or odd
number that the fault bench keeps for its final table is ever drawn. The third mix takes its rows as the bench does,
small pictures and short texts, which train quickly: most of its lessons are of quiet faults, where pictures and texts
differ most from the rest.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np

from fedvitals.bench.scorer import wide
from fedvitals.bench.scorer.mixes import FIRST, SECOND, THIRD, Lesson, with_fault

FAMILIES = ("digits", "digits_cnn", "synthetic", "mnist_mlp", "mnist_cnn", "shakespeare")
OWNERLESS = ("digits", "digits_cnn", "synthetic")  # no clients of their own
SECOND_MIX = 100_000  # numbers from here on are drawn from the second mix
THIRD_MIX = 300_000  # from here on from the third
WIDE_MIX = 400_000  # and from here on of many worlds
NATURAL_CLIENTS = 110  # of a subset of a data set with clients of its own
FLAT_ROWS = {10: 1200, 14: 1200, 20: 2400, 30: 3000, 50: 5000, 100: 8000}  # of MNIST, by the number of clients
MIXES = {THIRD_MIX: THIRD, SECOND_MIX: SECOND, 0: FIRST}  # by the least of their numbers


def lesson(number: int, data: Path, subsets: Path) -> Lesson:
    """The training of this number. `data` holds the real data sets, `subsets` is where parts of them are kept."""
    if number % 2:
        raise ValueError(f"{number} is odd: odd numbers are kept for the final measurement")
    if number >= WIDE_MIX:
        return wide.lesson(number)
    small_rows = number >= THIRD_MIX
    mix = next(one for least, one in MIXES.items() if number >= least)
    draw = random.Random(number)  # noqa: S311  (no secret: the same number must give the same lesson)
    family = draw.choices(FAMILIES, mix.families)[0]
    rounds = draw.choice([16, 20, 20, 24])
    small = family in ("digits", "digits_cnn", "synthetic", "mnist_mlp")
    clients = draw.choice([10, 14, 20, 20, 30, 30, 50, 100] if small or small_rows else [10, 20, 30])
    partition = draw.choice(_partitions(family, small_rows))
    source = {"source": _benched(family, number)} if small_rows else None
    rows = {"min_rows": 8, **(source or _source(draw, family, partition, clients, data, subsets)), "clients": clients}
    rows |= _dealt(partition)
    model, train = (_small_training if small_rows else _model_and_training)(draw, family)
    half = draw.random() < 0.35
    train |= {"rounds": rounds, "clients_per_round": max(5, clients // 2) if half else clients}
    job: dict[str, Any] = {"seed": number, "name": "lesson", "data": rows, "model": model, "train": train}
    job["execute"] = {"workers": 1}  # small trainings: further processes would take longer to start than to train
    kind, from_round = with_fault(draw, mix, family, partition, clients, job)
    return Lesson(number, family, partition, kind, from_round, job)


def _partitions(family: str, small_rows: bool) -> list[str]:
    if family == "shakespeare" and not small_rows:
        return ["natural", "natural", "iid"]
    return ["iid", "d1.0", "d0.3", "d0.1", *([] if family in OWNERLESS else ["natural", "natural"])]


def _dealt(partition: str) -> dict[str, Any]:
    if partition.startswith("d"):
        return {"partition": "dirichlet", "alpha": float(partition[1:])}
    return {"partition": partition}


def _source(
    draw: random.Random, family: str, partition: str, clients: int, data: Path, subsets: Path
) -> dict[str, Any]:
    if family.startswith("digits"):
        return {"source": "digits"}
    if family == "synthetic":
        return {
            "source": "synthetic",
            "rows": draw.choice([60, 120, 200]),
            "features": draw.choice([16, 32]),
            "classes": draw.choice([2, 5, 10]),
        }
    if family.startswith("mnist"):
        part = draw.choice([0, 2, 4, 6])
        return {"source": _subset("mnist", part, 0 if partition == "natural" else FLAT_ROWS[clients], data, subsets)}
    part = draw.choice([0, 2])
    return {"source": _subset("shakespeare", part, 0 if partition == "natural" else 80 * clients, data, subsets)}


def _model_and_training(draw: random.Random, family: str) -> tuple[dict[str, Any], dict[str, Any]]:
    batch, epochs = draw.choice([10, 16, 32, 32]), draw.choice([1, 2, 3, 3, 5])
    rate, momentum = draw.choice([0.03, 0.05, 0.1, 0.1, 0.2]), 0.0
    if draw.random() < 0.15:
        momentum, rate = 0.9, rate * 0.2
    model: dict[str, Any]
    if family == "mnist_cnn":
        model, epochs, batch = {"kind": "cnn", "channels": draw.choice([[4, 8], [8, 16]])}, min(epochs, 2), 32
    elif family == "digits_cnn":
        channels, hidden = draw.choice([[4, 8], [8, 16], [8]]), draw.choice([[32], [64]])
        model, epochs = {"kind": "cnn", "channels": channels, "kernel": 3, "hidden": hidden}, min(epochs, 3)
    elif family == "shakespeare":
        model, epochs, batch = {"kind": "gru", "hidden": [32]}, min(epochs, 2), 16
        rate = draw.choice([0.3, 0.5, 1.0])
    elif draw.random() < 0.12:
        model = {"kind": "logistic"}
    else:
        model = {"kind": "mlp", "hidden": draw.choice([[64], [32], [64, 32], [100]])}
    return model, {"epochs": epochs, "batch_size": batch, "lr": rate, "momentum": momentum}


def _benched(family: str, number: int) -> str:
    """The fault bench's own rows, of a draw that only lessons have."""
    name = family.partition("_")[0]
    return name if name == "digits" else f"fedvitals.bench.faults.problems:{name}_{number}"


def _small_training(draw: random.Random, family: str) -> tuple[dict[str, Any], dict[str, Any]]:
    batch, epochs = draw.choice([10, 10, 16, 32]), draw.choice([1, 1, 2, 3])
    if family == "shakespeare":
        model: dict[str, Any] = {"kind": "gru", "hidden": [draw.choice([16, 32, 32])], "embedding": 8}
        return model, {
            "epochs": min(epochs, 2),
            "batch_size": batch,
            "lr": draw.choice([0.5, 1.0, 1.0]),
            "momentum": 0.0,
        }
    channels, hidden = draw.choice([[4, 8], [8, 16], [8, 16], [8]]), draw.choice([[32], [32], [64]])
    model = {"kind": "cnn", "channels": channels, "kernel": 3, "hidden": hidden}
    return model, {"epochs": epochs, "batch_size": batch, "lr": draw.choice([0.05, 0.1, 0.2, 0.2]), "momentum": 0.0}


def _subset(name: str, part: int, rows_wanted: int, data: Path, subsets: Path) -> str:
    """Some of a data set's own clients, or so many of their rows; kept, because loading the whole takes long."""
    path = subsets / f"{name}_{part}_{rows_wanted}.npz"
    if path.exists():
        return str(path)
    with np.load(data / name / f"{name}.npz", allow_pickle=False) as file:
        arrays = {key: file[key] for key in ("x_train", "y_train", "client", "x_test", "y_test", "client_test")}
    random_rows = np.random.default_rng(part)
    chosen = random_rows.choice(np.unique(arrays["client"]), NATURAL_CLIENTS, replace=False)
    rows = np.flatnonzero(np.isin(arrays["client"], chosen))
    if rows_wanted:
        rows = np.sort(random_rows.choice(rows, min(rows_wanted, len(rows)), replace=False))
    test = random_rows.choice(len(arrays["y_test"]), 600, replace=False)
    kept = {key: array[test if key.endswith("test") else rows] for key, array in arrays.items()}
    subsets.mkdir(parents=True, exist_ok=True)
    np.savez(path, **kept)
    return str(path)
