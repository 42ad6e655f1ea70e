"""What if there were no rounds: against runs whose truth is reckoned by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from federations import JOB, known, model_of, side_by_side
from scripted import a_round, profiled, work

from fedvitals.profile.whatif.changes import asynchronous
from fedvitals.profile.whatif.model import Model
from fedvitals.profile.whatif.prediction import Declined, Prediction
from fedvitals.profile.whatif.telling import NOT_OURS
from fedvitals.vocabulary import Record


def _made(found: Prediction | Declined | None) -> Prediction:
    assert isinstance(found, Prediction)
    return found


def test_without_rounds_a_step_waits_for_its_own_buffer(tmp_path: Path) -> None:
    """Three equal clients of 2 s and a server of 1 s a step: 3 s for every three updates, as nobody else is there."""
    made = side_by_side([{"a": 2.0, "b": 2.0, "c": 2.0}] * 10)
    model = model_of(tmp_path, made, JOB, clock="virtual", executor="x")
    found = _made(asynchronous.with_buffer(model, 3))
    assert model.profile.wall_s == pytest.approx(35.0)
    assert found.predicted_s == pytest.approx(30.0)
    assert found.unverified is None
    assert found.job is not None
    keys = ("server.mode", "server.buffer", "server.concurrency", "train.rounds", "train.evaluate_every")
    assert [found.job[key] for key in keys] == ["async", 3, 3, 10, 10]


def test_without_rounds_nobody_waits_for_the_slowest(tmp_path: Path) -> None:
    """Two quick clients make 15 steps of 2 s and the server's 3/4 (two updates and the model, of three and it)."""
    model = model_of(tmp_path, side_by_side([{"a": 2.0, "b": 2.0, "c": 8.0}] * 10), clock="virtual")
    found = _made(asynchronous.with_buffer(model, 2))
    assert model.profile.wall_s == pytest.approx(95.0)
    assert found.predicted_s == pytest.approx(15 * 2.75)
    assert found.unverified == NOT_OURS


def test_on_worker_processes_a_place_is_a_worker(tmp_path: Path) -> None:
    """Two workers are never idle: four clients of 3, 1, 1 and 1 s a round take 3 s for every four, not 4."""
    told = {"executor": "processes", "cpus_usable": 2, "clock": "real"}
    durations = {"a": 1.0, "b": 1.0, "c": 1.0, "d": 3.0}
    records: list[Record] = []
    for number in range(8):
        for place, (client, seconds) in enumerate(durations.items()):
            start = 4.0 * number + place // 2
            records.append(work(client, start, start + seconds, {"train": seconds}, round=number, attempt=number))
        records.append(a_round(number, 4.0 * number, 4.0 * number + 4.0))
    config = {**JOB, "execute": {"workers": 2}}
    model = Model.of(known(profiled(tmp_path, records, end=32.0), config, **told))
    found = _made(asynchronous.with_buffer(model, 2))
    assert found.predicted_s == pytest.approx(24.0, rel=0.1)
    assert found.job is not None
    assert (found.job["server.concurrency"], found.job["execute.executor"]) == (2, "processes")
