"""A lesson, trained and charted -> what the scorer is fitted on; kept on disk, so that a cut-off course goes on."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedvitals.bench.charted import charted
from fedvitals.bench.scorer.kinds import SCORED
from fedvitals.bench.scorer.mixes import Lesson
from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.evidence.course import FEATURES, course
from fedvitals.errors import FedvitalsError
from fedvitals.settings import Settings
from fedvitals.train.engine import Training
from fedvitals.train.job import Job
from fedvitals.train.threads import one_thread

log = logging.getLogger("fedvitals")


@dataclass(frozen=True, slots=True, eq=False)
class Learnt:
    """What one training showed: a row a participation that could be measured."""

    number: int
    family: str  # of the rows
    kind: str
    features: NDArray[np.float16]  # of millions of rows: scores and logarithms need no more
    client: NDArray[np.int32]
    attempt: NDArray[np.int32]
    guilty: NDArray[np.bool_]

    @property
    def clean(self) -> bool:
        return self.kind == "clean"

    @property
    def scorer(self) -> str | None:
        """Which scorer it teaches."""
        return SCORED.get(self.kind)


def learnt(lesson: Lesson, folder: Path) -> Learnt | None:
    """From disk, or trained now; None where the training could not end."""
    path = folder / f"{lesson.number}.npz"
    found = _read(path, lesson)
    if found is None:
        found = _trained(lesson)
        if found is not None:
            folder.mkdir(parents=True, exist_ok=True)
            _write(path, found)
    return found


def all_learnt(lessons: Sequence[Lesson], folder: Path, workers: int) -> Iterator[Learnt | None]:
    """All of them, in their order. Processes of one thread each play those that are not on disk."""
    missing = [one for one in lessons if not (folder / f"{one.number}.npz").exists()]
    if missing and workers > 1:
        with processes(workers) as pool:
            for _ in pool.map(partial(_keep, folder=folder), missing):
                pass
    return (learnt(one, folder) for one in lessons)


def processes(workers: int) -> ProcessPoolExecutor:
    """So many that are silent, of one thread each."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the processes to come
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, context, initializer=logging.disable, initargs=(logging.WARNING,))


def _keep(lesson: Lesson, folder: Path) -> None:
    """Play it if need be, and send nothing back: it is on disk."""
    learnt(lesson, folder)


def _trained(lesson: Lesson) -> Learnt | None:
    with one_thread(), tempfile.TemporaryDirectory() as place:
        try:
            training = Training.prepare(Job.from_dict(lesson.job))
            chart, _, stopped = charted(training, Settings(dir=place))
        except FedvitalsError as error:
            stopped = str(error)
    if stopped:
        log.info("lesson %d could not be trained: %s", lesson.number, stopped)
        return None
    return noted(lesson, chart, training.injector.culprits())


def noted(lesson: Lesson, chart: Chart, culprits: Iterable[str]) -> Learnt:
    """What the chart of a lesson's training shows."""
    seen, table = course(chart), chart.participations
    rows = seen.measured
    struck = np.isin(np.array(chart.clients)[table.client[rows]], list(culprits))
    with np.errstate(over="ignore"):
        features = seen.features[rows].astype(np.float16)
    return Learnt(
        lesson.number,
        lesson.family,
        lesson.kind,
        features,
        table.client[rows].astype(np.int32),
        table.attempt[rows].astype(np.int32),
        struck & (table.round[rows] >= lesson.from_round),
    )


def _write(path: Path, one: Learnt) -> None:
    about = json.dumps({"kind": one.kind, "features": FEATURES})
    np.savez(  # packing it would take longer than the training did
        path, about=np.array(about), features=one.features, client=one.client, attempt=one.attempt, guilty=one.guilty
    )


def _read(path: Path, lesson: Lesson) -> Learnt | None:
    """What is on disk, if it is of the features that there are now."""
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as file:
        about = json.loads(str(file["about"]))
        if tuple(about["features"]) != FEATURES or about["kind"] != lesson.kind:
            return None
        rows = (file[name] for name in ("features", "client", "attempt", "guilty"))
        return Learnt(lesson.number, lesson.family, lesson.kind, *rows)
