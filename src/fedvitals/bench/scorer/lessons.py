"""A lesson, trained and charted -> what the scorer is fitted on; kept on disk, so that a cut-off course goes on."""

from __future__ import annotations

import json
import logging
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedvitals.bench.scorer.curriculum import Lesson
from fedvitals.bench.scorer.kinds import SCORED
from fedvitals.diagnose.charting import read_chart
from fedvitals.diagnose.evidence.course import FEATURES, course
from fedvitals.errors import FedvitalsError
from fedvitals.faults.injector import Injector
from fedvitals.settings import Settings
from fedvitals.store import open_store
from fedvitals.train.build import build
from fedvitals.train.engine import train
from fedvitals.train.job import Job

log = logging.getLogger("fedvitals")
ENOUGH_LAYERS = [("layer", (2, 2))] * 8  # for asking an injector whom it strikes, not what


@dataclass(frozen=True, slots=True, eq=False)
class Learnt:
    """What one training showed: a row a participation that could be measured."""

    number: int
    kind: str
    features: NDArray[np.float32]
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


def _trained(lesson: Lesson) -> Learnt | None:
    job = Job.from_dict(lesson.job)
    with tempfile.TemporaryDirectory() as place:
        settings = Settings(dir=place)
        try:
            train(job, settings=settings)
        except FedvitalsError as error:
            log.info("lesson %d could not be trained: %s", lesson.number, error)
            return None
        reader = open_store(settings).open("last")
        chart = read_chart(reader)
        reader.close()
    seen, table = course(chart), chart.participations
    rows = seen.measured
    struck = np.isin(np.array(chart.clients)[table.client[rows]], _struck(job))
    return Learnt(
        lesson.number,
        lesson.kind,
        seen.features[rows].astype(np.float32),
        table.client[rows].astype(np.int32),
        table.attempt[rows].astype(np.int32),
        struck & (table.round[rows] >= lesson.from_round),
    )


def _struck(job: Job) -> list[str]:
    if not job.faults:
        return []
    federation = build(job)
    injector = Injector(
        job.faults, federation.clients, job.seed, trainable_layers=ENOUGH_LAYERS, classes=federation.classes
    )
    return list(injector.culprits())


def _write(path: Path, one: Learnt) -> None:
    about = json.dumps({"kind": one.kind, "features": FEATURES})
    np.savez_compressed(
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
        return Learnt(lesson.number, lesson.kind, file["features"], file["client"], file["attempt"], file["guilty"])
