"""The codec bench: what is trained, and the ways of sending it that are compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedvitals.bench.faults.problems import data_folder
from fedvitals.randomness import stream
from fedvitals.train.job import Job
from fedvitals.train.sections import DataSpec

ROUNDS = 100  # of the training that is not compressed, whose accuracy the others have to reach
LONGEST = 3  # times as many rounds they may take
LESS = 0.005  # of accuracy they may stay behind
SEEDS = (10, 11, 12, 13, 14)  # 0 to 4 were looked at while the steps of the grids were chosen, 5 to 9 before they were
LATER_SEEDS = (15, 16, 17, 18, 19)  # of what was chosen once more after the others had been measured
FOLDS = 5  # of digits: over the seeds each of its rows is held out once, and half a point is nine of them
FASHION, SHAKESPEARE = "fashion_mnist/fashion_mnist.npz", "shakespeare/shakespeare.npz"
PICTURES, TEST_ROWS = 100, 4000  # a client; for judging

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Problem:
    """A federation and a model, with the steps of the grids that go up and down."""

    name: str
    data: dict[str, Any]
    model: dict[str, Any]
    train: dict[str, Any]
    up: str
    down: str
    file: str = ""  # in the folder of data sets; "": comes with the package
    server: dict[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] = SEEDS

    @property
    def missing(self) -> str:
        """Why it cannot be run here; empty when it can."""
        path = data_folder() / self.file
        return f"there is no {path}" if self.file and not path.is_file() else ""

    def job(self, seed: int) -> Job:
        return Job.from_dict(
            {
                "name": f"bytes-{self.name}",
                "seed": seed,
                "data": {"clients": 100, "holdout": 0.0, **self.data, "source": self._source(seed)},
                "model": self.model,
                "train": {"rounds": ROUNDS, "clients_per_round": 10, **self.train},
                "server": self.server,
                "execute": {"executor": "vectorised", "workers": 1},
            }
        )

    def _source(self, seed: int) -> str:
        return str(self.data["source"]).replace("{fold}", str(seed % FOLDS))


def __getattr__(name: str) -> Callable[[DataSpec], Arrays]:
    """`digits_2` is the function that gives digits with fold 2 held out."""
    problem, _, fold = name.rpartition("_")
    if problem != "digits" or not fold.isdecimal() or int(fold) >= FOLDS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return lambda _: _without_fold(int(fold))


def _without_fold(fold: int) -> Arrays:
    """Digits, a fold of them for judging: every fifth row of each class, in an order of chance."""
    from sklearn.datasets import load_digits  # a second to import: only for who asks for it

    x, y = load_digits(return_X_y=True)
    order = stream(0, "folds of digits").permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]
    held = np.zeros(len(y), dtype=bool)
    held[order[fold::FOLDS]] = True
    images = (x / 16.0).reshape(-1, 8, 8).astype(np.float32)
    return {"x_train": images[~held], "y_train": y[~held], "x_test": images[held], "y_test": y[held]}


def fashion(data: DataSpec) -> Arrays:
    """A hundred pictures a client."""
    with np.load(data_folder() / FASHION, allow_pickle=False) as file:
        return {
            "x_train": file["x_train"][: data.clients * PICTURES],
            "y_train": file["y_train"][: data.clients * PICTURES],
            "x_test": file["x_test"][:TEST_ROWS],
            "y_test": file["y_test"][:TEST_ROWS],
        }


def shakespeare(data: DataSpec) -> Arrays:
    """The first roles, with all of their lines."""
    with np.load(data_folder() / SHAKESPEARE, allow_pickle=False) as file:
        mine, tested = file["client"] < data.clients, file["client_test"] < data.clients
        return {
            "x_train": file["x_train"][mine],
            "y_train": file["y_train"][mine],
            "client": file["client"][mine],
            "x_test": file["x_test"][tested][:TEST_ROWS],
            "y_test": file["y_test"][tested][:TEST_ROWS],
            "vocab": file["vocab"],
        }


PROBLEMS = (
    Problem(
        "digits",
        {"source": f"{__name__}:digits_{{fold}}", "alpha": 0.5, "min_rows": 4},
        {"kind": "mlp", "hidden": [64]},
        {"lr": 0.2, "epochs": 5, "batch_size": 8},
        "grid:0.16 | entropy",
        "grid:0.25 | entropy",
    ),
    Problem(
        "fashion",
        {"source": f"{__name__}:fashion", "alpha": 0.5},
        {"kind": "cnn"},
        {"lr": 0.1, "epochs": 2, "batch_size": 20},
        "grid:0.02 | entropy",
        "grid:0.04 | entropy",
        FASHION,
    ),
    Problem(
        "shakespeare",
        {"source": f"{__name__}:shakespeare", "partition": "natural"},
        {"kind": "gru", "hidden": [64]},
        {"lr": 1.0, "epochs": 1, "batch_size": 10, "clip": 1.0},
        "grid:0.1 | entropy",
        "grid:0.1 | entropy",
        SHAKESPEARE,
        {"aggregator": "fedavgm", "lr": 0.15},
        LATER_SEEDS,
    ),
)


@dataclass(frozen=True, slots=True)
class Way:
    """How updates and steps are sent."""

    name: str
    up: str = "identity"
    down: str = "identity"
    of_weights: str = ""  # a codec on whole models instead, as the tutorials do it


def ways(problem: Problem) -> tuple[Way, ...]:
    """What is compared on a problem; the first is what the others are held to."""
    return (
        Way("not compressed"),
        Way("with feedback", f"feedback({problem.up})", f"feedback({problem.down})"),
        Way("without feedback", problem.up, problem.down),
        Way("weights instead of differences", of_weights="feedback(topk:0.1:layer)"),
    )
