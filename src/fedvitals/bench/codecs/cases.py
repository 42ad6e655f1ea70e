"""The codec bench: what is trained, and the ways of sending it that are compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedvitals.bench.faults.problems import data_folder
from fedvitals.train.job import Job

ROUNDS = 100  # of the training that is not compressed, whose accuracy the others have to reach
LONGEST = 3  # times as many rounds they may take
LESS = 0.005  # of accuracy they may stay behind
SEEDS = 5


@dataclass(frozen=True, slots=True)
class Problem:
    """A federation and a model, with the steps of the grids that go up and down."""

    name: str
    data: dict[str, Any]
    model: dict[str, Any]
    train: dict[str, Any]
    up: str
    down: str
    file: str = ""

    @property
    def missing(self) -> str:
        """Why it cannot be run here; empty when it can."""
        path = data_folder() / self.file
        return f"there is no {path}" if self.file and not path.is_file() else ""

    def job(self, seed: int) -> Job:
        data = {"clients": 100, "holdout": 0.0, **self.data}
        if self.file:
            data["source"] = str(data_folder() / self.file)
        return Job.from_dict(
            {
                "name": f"bytes-{self.name}",
                "seed": seed,
                "data": data,
                "model": self.model,
                "train": {"rounds": ROUNDS, "clients_per_round": 10, **self.train},
                "execute": {"executor": "vectorised", "workers": 1},
            }
        )


PROBLEMS = (
    Problem(
        "digits",
        {"source": "digits", "alpha": 0.5, "min_rows": 4},
        {"kind": "mlp", "hidden": [64]},
        {"lr": 0.2, "epochs": 5, "batch_size": 8},
        "grid:0.1 | entropy",
        "grid:0.2 | entropy",
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
        Way("weights instead of differences", of_weights="topk:0.1:layer"),
    )
