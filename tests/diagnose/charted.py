"""Charts for the tests of rules: of jobs of the engine, and of loops on a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn

import fedvitals
from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.charting import read_chart
from fedvitals.diagnose.diagnosis import Diagnosis, examine
from fedvitals.diagnose.registry import chosen
from fedvitals.errors import TrainingError
from fedvitals.run import Run
from fedvitals.settings import Settings
from fedvitals.train.engine import train
from fedvitals.train.job import Job
from fedvitals.vocabulary import Finding, Severity

SYSTEM = ("FL1", "FL2", "FL3", "FL7", "FL8", "FL9")


def trained(
    folder: Path, changes: Mapping[str, Any] | None = None, faults: Sequence[Mapping[str, Any]] = (), **settings: Any
) -> Chart:
    """The chart of a job on digits: 20 clients, 8 a round, 20 rounds, on the virtual clock."""
    job = Job.from_dict(
        {
            "data": {"source": "digits", "clients": 20},
            "train": {"rounds": 20, "clients_per_round": 8, "epochs": 2},
            "execute": {"clock": "virtual", "workers": 2},
            "faults": list(faults),
        }
    ).replaced(dict(changes or {}))
    kept = Settings(dir=str(folder), **settings)
    with suppress(TrainingError):  # a run that fails is recorded all the same
        train(job, settings=kept)
    return last(kept)


def last(settings: Settings) -> Chart:
    """The chart of the newest run."""
    with closing(fedvitals.open_store(settings).open("last")) as reader:
        return read_chart(reader)


class Clock:
    """Stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now

    def go_on(self, seconds: float) -> None:
        self.now += round(seconds * 1e9)


def model(seed: int = 0, outputs: int = 3) -> nn.Module:
    """A small one, the same for the same seed."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, outputs))


def looped(folder: Path, loop: Callable[[Run, Clock], None], **settings: Any) -> Chart:
    """The chart of what `loop` records; what it raises ends the run."""
    kept, clock = Settings(dir=str(folder), **{"resources_every_s": 0.0} | settings), Clock()
    run = fedvitals.start("own-loop", settings=kept, now_ns=clock)
    assert isinstance(run, Run)
    with run:
        loop(run, clock)
    return last(kept)


def diagnosed(chart: Chart, *codes: str) -> Diagnosis:
    """What these rules say; none of them may break."""
    found = examine(chart, chosen(codes))
    assert not [reason for reason in found.not_observable.values() if "the rule broke" in reason]
    return found


def found(chart: Chart, *codes: str) -> tuple[Finding, ...]:
    return diagnosed(chart, *codes).findings


def alarms(chart: Chart, *codes: str) -> list[tuple[str, str]]:
    """Warnings and graver ones, with their reasons."""
    return [(one.code, one.why) for one in found(chart, *codes) if one.severity is not Severity.INFO]
