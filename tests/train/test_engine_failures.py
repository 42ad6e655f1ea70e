"""Clients that fail by themselves: kept with the reason, left out, and no burden to the others."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from small_jobs import EXECUTORS, Spy, carried_out, recorded, run, small
from torch import Tensor

from fedvitals.errors import TrainingError
from fedvitals.faults.work import LocalWork
from fedvitals.train.engine import Training
from fedvitals.train.local import SequentialExecutor
from fedvitals.train.trained import Failed
from fedvitals.train.vectorised import VectorisedExecutor
from fedvitals.vocabulary import Outcome

ALL = {"train.clients_per_round": 6, "train.rounds": 3}


def test_a_batch_that_fails_is_trained_one_by_one(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody's work is lost, and the log says why it took so long."""
    changes = {**ALL, "train.rounds": 1, "model.kind": "own_models:plain"}
    training = Training.prepare(small(changes, executor="vectorised"))

    def refuse(*_: object) -> Tensor:
        raise ArithmeticError("this batch cannot be")

    assert isinstance(training.executor, VectorisedExecutor)
    monkeypatch.setattr(training.executor._trainer._by_hand._model, "losses_and_gradient", refuse)
    together, alone = carried_out(training), Spy()
    run(small(changes), hook=alone)
    assert together.updates[0].keys() == alone.updates[0].keys()
    assert all(torch.equal(update, together.updates[0][client]) for client, update in alone.updates[0].items())
    assert "the batch failed (ArithmeticError: this batch cannot be)" in caplog.text


class UnspeakableError(Exception):
    """Raises when asked what it says."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize("error", [UnspeakableError(), ValueError("x" * 10**6)], ids=["unspeakable", "endless"])
def test_whatever_a_client_raises_is_bounded(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception that cannot be written down is a failure of its client all the same."""
    training = Training.prepare(small(ALL))

    def stumble(*_: object) -> Tensor:
        raise error

    assert isinstance(training.executor, SequentialExecutor)
    monkeypatch.setattr(training.executor._trainer.model.module, "forward", stumble)
    (failed,) = training.executor.run(
        [LocalWork(client=3, name="3", attempt=0, round=0, lr=0.1)], training.model.weights.clone(), {}
    )
    assert isinstance(failed, Failed)
    assert failed.kind == type(error).__name__
    assert 0 < len(failed.message) <= 2000
    assert failed.traceback is None or len(failed.traceback) <= 32768


def test_a_client_that_raises_is_kept_and_left_out(tmp_path: Path) -> None:
    """Its failure has the traceback, its participation the outcome, and the round goes on without it."""
    changes = {**ALL, "model.kind": "own_models:refusing", "faults": [{"kind": "nan-batch", "clients": [2]}]}
    for executor in EXECUTORS:
        spy = Spy()
        result = run(small(changes, executor=executor), tmp_path / executor, hook=spy)
        assert result.failed == 3
        assert all("2" not in updates for updates in spy.updates)
        with recorded(tmp_path / executor) as reader:
            failures = reader.failures()
            mine = reader.participations(client="2")
            rounds = reader.rounds()
        assert {(one.stage, one.kind, one.message, one.client) for one in failures} == {
            ("train", "ArithmeticError", "a row holds NaN", "2")
        }
        assert all("own_models.py" in (one.traceback or "") for one in failures)
        assert [one.outcome for one in mine] == [Outcome.FAILED] * 3
        assert [(one.selected, one.used, one.failed) for one in rounds] == [(6, 5, 1)] * 3


def test_a_client_that_fails_leaves_nothing_to_the_next() -> None:
    """Not even the buffers that its forward pass had assigned: the others train as if it had not begun."""
    changes = {**ALL, "model.kind": "own_models:stumbling"}
    spoilt = run(small({**changes, "faults": [{"kind": "nan-batch", "clients": [1]}]}))
    absent = run(small({**changes, "faults": [{"kind": "crash", "clients": [1]}]}))
    assert spoilt.failed == absent.failed == 3
    assert spoilt.weights_sha256 == absent.weights_sha256


@pytest.mark.parametrize("executor", EXECUTORS)
def test_when_all_fail_the_first_is_named(executor: str) -> None:
    """The round, how many, and the reason of the first in order of selection."""
    faults = [{"kind": "crash", "share": 1.0, "from_round": 1}]
    said = "round 1: all 6 clients failed; the first, 0, with ClientCrashError: injected fault: client 0 crashed in"
    with pytest.raises(TrainingError, match=said):
        run(small({**ALL, "faults": faults}, executor=executor))
