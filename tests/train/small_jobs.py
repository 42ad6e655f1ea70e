"""Jobs that take a blink, and looks at what became of them: shared by the engine's tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedvitals.settings import Settings
from fedvitals.store import RunReader, SQLiteStore
from fedvitals.train.engine import Training, train
from fedvitals.train.hooks import Rollback, RoundHook, RoundUpdates
from fedvitals.train.job import Job
from fedvitals.train.progress import NoProgress, Progress
from fedvitals.train.result import Result

EXECUTORS = ("sequential", "processes", "vectorised")
SMALL = {
    "name": "small",
    "data.source": "synthetic",
    "data.clients": 6,
    "data.rows": 40,
    "data.features": 12,
    "data.classes": 4,
    "data.test_rows": 60,
    "model.hidden": [8],
    "train.rounds": 2,
    "train.clients_per_round": 4,
    "train.epochs": 2,
    "train.batch_size": 8,
    "execute.workers": 2,
}


def small(changes: Mapping[str, Any] | None = None, *, executor: str = "sequential") -> Job:
    """Six clients of unequal size, four a round, two rounds."""
    return Job().replaced({**SMALL, "execute.executor": executor, **(changes or {})})


def run(
    job: Job,
    folder: Path | None = None,
    *,
    hook: RoundHook | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Result:
    """Train it, recorded in `folder` or not at all."""
    chosen = Settings(mode="off") if folder is None else Settings(dir=str(folder), **settings)
    return train(job, settings=chosen, hook=hook, progress=progress)


@contextmanager
def recorded(folder: Path, which: str = "last") -> Iterator[RunReader]:
    reader = SQLiteStore(folder).open(which)
    try:
        yield reader
    finally:
        reader.close()


def weights(result: Result) -> Tensor:
    """All values of the trained model in one row."""
    return torch.cat([tensor.reshape(-1).double() for tensor in result.model.state_dict().values()])


def apart(one: Result, other: Result) -> float:
    """The largest difference of two results, as a share of the largest weight."""
    a, b = weights(one), weights(other)
    return float((a - b).abs().max() / a.abs().max())


class Spy:
    """A hook that changes nothing and keeps what it sees."""

    def __init__(self) -> None:
        self.updates: list[dict[str, Tensor]] = []
        self.states: list[dict[str, Tensor]] = []

    def before_aggregate(self, round: int, updates: RoundUpdates) -> RoundUpdates:
        rows = zip(updates.clients, updates.updates, strict=True)
        self.updates.append({client: row.clone() for client, row in rows})
        return updates

    def after_round(self, round: int, model_state: Mapping[str, Tensor]) -> Rollback | None:
        self.states.append({name: tensor.clone() for name, tensor in model_state.items()})
        return None


def carried_out(training: Training) -> Spy:
    """The rounds of a training that a test has changed beforehand, unrecorded."""
    spy = Spy()
    with training.recorded(Settings(mode="off")) as recording:
        training.rounds(recording, spy, NoProgress(), 0.0)
    return spy


class Told:
    """A progress that remembers."""

    def __init__(self) -> None:
        self.beginning: tuple[int, str, str] = (0, "", "")
        self.rounds: list[tuple[int, int, float | None, int, int]] = []
        self.result: Result | None = None

    def began(self, job: Job, clients: int, executor: str, why: str) -> None:
        self.beginning = (clients, executor, why)

    def round_done(
        self,
        number: int,
        of: int,
        loss: float | None,
        accuracy: float | None,
        clients: int,
        failed: int,
        elapsed_s: float,
    ) -> None:
        self.rounds.append((number, of, loss, clients, failed))

    def ended(self, result: Result) -> None:
        self.result = result


def pictures() -> np.ndarray:
    """[rows, channels, height, width], for a convolution to look at."""
    return np.random.default_rng(3).normal(size=(160, 3, 12, 12)).astype(np.float32)


def sequences() -> np.ndarray:
    return np.random.default_rng(4).normal(size=(160, 9, 3)).astype(np.float32)


def tokens() -> np.ndarray:
    return np.random.default_rng(5).integers(0, 11, (160, 7)).astype(np.uint8)


def with_file(changes: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The same changes, where `data.source` names rows of this module put into a file, with four classes."""
    makers = {"pictures": pictures, "sequences": sequences, "tokens": tokens}
    wanted = changes.get("data.source")
    if wanted not in makers:
        return dict(changes)
    path = folder / f"{wanted}.npz"
    x = makers[wanted]()
    np.savez(path, x_train=x, y_train=np.arange(len(x)) % 4)
    return {**changes, "data.source": str(path)}
