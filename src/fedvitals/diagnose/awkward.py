"""Runs that no rule expects, really recorded: what every rule must be able to look at. Part of the test kit.

Each is made in a process of its own or through the public door, in a folder that is gone afterwards; a chart holds all
that a rule sees.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fedvitals
from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.charting import read_chart

Model = list[NDArray[np.float32]]
SHAPES = ((6, 4), (6,), (3, 6), (3,))


def model() -> Model:
    drawn = np.random.default_rng(0)
    return [drawn.standard_normal(shape).astype(np.float32) for shape in SHAPES]


def trained(start: Model, seed: int, length: float = 0.05) -> Model:
    """The model after a pretended training: all move alike, and each a little its own way."""
    drawn = np.random.default_rng(seed)
    return [layer + length * (1 + 0.3 * drawn.standard_normal(layer.shape)).astype(np.float32) for layer in start]


class Recording:
    """A federated training in which nothing goes wrong but what is told."""

    def __init__(self, run: Any) -> None:
        self.run = run
        self.model = model()

    def round(self, number: int, clients: Mapping[str, float | None], **told: Any) -> None:
        """Clients by name with their loss; `evaluated`: the global loss, None for no evaluation; `equal`: all alike."""
        with self.run.round(number, model=self.model) as rnd:
            for place, (name, loss) in enumerate(clients.items()):
                with rnd.client(name, samples=told.get("samples", 20)) as client:
                    seed = 0 if told.get("equal") else 1000 * number + place
                    for _ in client.batches(range(3)):
                        client.step(loss)
                    client.submit(trained(self.model, seed, told.get("length", 0.05)), loss=loss)
            with rnd.phase("aggregate"):
                self.model = trained(self.model, number)
            if told.get("evaluated") is not None:
                rnd.evaluated(loss=told["evaluated"], accuracy=min(0.1 * number, 1.0))


def _clients(count: int, loss: float | None = 1.0) -> dict[str, float | None]:
    return {str(number): loss for number in range(count)}


def _healthy(recording: Recording) -> None:
    for number in range(8):
        recording.round(number, _clients(5, 2.0 - 0.2 * number), evaluated=2.0 - 0.2 * number)


def _without_evaluations(recording: Recording) -> None:
    for number in range(6):
        recording.round(number, _clients(4))


def _one_client(recording: Recording) -> None:
    for number in range(6):
        recording.round(number, _clients(1), evaluated=1.0)


def _one_round(recording: Recording) -> None:
    recording.round(0, _clients(5), evaluated=1.0)


def _missing_rounds(recording: Recording) -> None:
    for number in (0, 3, 4, 900):
        recording.round(number, _clients(4), evaluated=1.0)


def _changing_names(recording: Recording) -> None:
    for number in range(6):
        recording.round(number, {f"{number}-{place}": 1.0 for place in range(4)}, evaluated=1.0)


def _equal_updates(recording: Recording) -> None:
    for number in range(6):
        recording.round(number, _clients(5), evaluated=1.0, equal=True)


def _no_updates(recording: Recording) -> None:
    for number in range(6):
        recording.round(number, _clients(5), evaluated=1.0, length=0.0)


def _infinite_losses(recording: Recording) -> None:
    for number, loss in enumerate((1.0, float("inf"), float("nan"), float("-inf"), float("inf"), float("nan"))):
        recording.round(number, _clients(4, loss), evaluated=loss)


def _nothing_finite(recording: Recording) -> None:
    for number in range(5):
        recording.round(number, _clients(4, float("nan")), evaluated=float("nan"), length=float("nan"))


def _nothing_told(recording: Recording) -> None:
    """No model, no loss, no samples, no update: only that clients were there."""
    for number in range(4):
        with recording.run.round(number) as rnd:
            for name in ("a", "b"):
                with rnd.client(name):
                    pass


def _one_name_twice(recording: Recording) -> None:
    for number in range(4):
        with recording.run.round(number, model=recording.model) as rnd:
            for name in ("a", "a", "b"):
                with rnd.client(name, samples=0) as client:
                    client.submit(trained(recording.model, number), loss=1.0)


def _everyone_fails(recording: Recording) -> None:
    for number in range(4):
        with recording.run.round(number, model=recording.model) as rnd:
            for name in ("a", "b", "c"):
                rnd.failed(name, stage="train", kind="ValueError", message=f"client {name} broke")


def _changing_models(recording: Recording) -> None:
    """The model grows in the middle of the run."""
    for number in range(6):
        if number == 3:
            recording.model = [*recording.model, np.zeros((2, 3), np.float32)]
        recording.round(number, _clients(4), evaluated=1.0)


def _empty(recording: Recording) -> None:
    """A run in which nothing happened."""


MADE: dict[str, Callable[[Recording], None]] = {
    "healthy": _healthy,
    "no evaluations": _without_evaluations,
    "one client": _one_client,
    "one round": _one_round,
    "missing rounds": _missing_rounds,
    "clients that change names": _changing_names,
    "all updates equal": _equal_updates,
    "updates of nothing": _no_updates,
    "infinite losses": _infinite_losses,
    "nothing finite": _nothing_finite,
    "nothing told": _nothing_told,
    "one name twice": _one_name_twice,
    "every client fails": _everyone_fails,
    "a model that changes": _changing_models,
    "empty": _empty,
}
CUT_OFF = "cut off"
LEVELS = {"healthy, sealed": "sealed", "healthy, summary": "summary"}
NAMES = (*MADE, *LEVELS, CUT_OFF)
_KILLED = """
import os, signal, sys, fedvitals
from fedvitals.diagnose.awkward import Recording
run = fedvitals.start("awkward", dir=sys.argv[1])
recording = Recording(run)
for number in range(4):
    recording.round(number, {str(place): 1.0 for place in range(4)}, evaluated=1.0)
with run.round(4, model=recording.model) as rnd, rnd.client("0") as client:
    client.submit(recording.model, loss=1.0)
    run.diagnose()  # all of it is on disk
    os.kill(os.getpid(), signal.SIGKILL)
"""


@cache
def awkward_chart(name: str) -> Chart:
    """The chart of one of NAMES, recorded the first time that it is asked for."""
    with tempfile.TemporaryDirectory(prefix="fedvitals-") as folder:
        if name == CUT_OFF:
            _kill(folder)
        else:
            _record(folder, MADE[name.partition(",")[0]], LEVELS.get(name, "open"))
        with _only_run(folder) as chart:
            return chart


def _record(folder: str, happens: Callable[[Recording], None], level: str) -> None:
    with fedvitals.start("awkward", dir=folder, level=level) as run:
        happens(Recording(run))


def _kill(folder: str) -> None:
    """A process that is killed in the middle of a round."""
    done = subprocess.run([sys.executable, "-c", _KILLED, folder], check=False)  # noqa: S603  # our own script
    if done.returncode != -signal.SIGKILL:
        raise RuntimeError(f"the run that was to be killed ended with {done.returncode}")


@contextmanager
def _only_run(folder: str) -> Iterator[Chart]:
    with closing(fedvitals.open_store(fedvitals.Settings(dir=folder)).open("last")) as reader:
        yield read_chart(reader)
