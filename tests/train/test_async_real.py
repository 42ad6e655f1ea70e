"""Training without rounds on the real clock: worker processes, each on a model of its own."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from small_jobs import recorded, run, small

from fedvitals.errors import JobError, TrainingError
from fedvitals.vocabulary import Outcome

REAL: dict[str, Any] = {
    "data.clients": 8,
    "train.rounds": 10,
    "server.mode": "async",
    "server.buffer": 2,
    "server.concurrency": 6,
    "execute.workers": 3,
}


def test_workers_train_on_different_versions_at_once(tmp_path: Path) -> None:
    """One slow client is at work while the model moves on; what it received is the version it began with."""
    faults = [{"kind": "slow-compute", "clients": [0], "strength": 60.0}]
    result = run(small({**REAL, "train.rounds": 30, "faults": faults}, executor="processes"), tmp_path)
    assert result.executor == "processes"
    with recorded(tmp_path) as reader:
        rounds, every = list(reader.rounds()), list(reader.participations())
    some = [one for one in every if one.outcome != Outcome.LATE]
    unfinished = [one for one in every if one.outcome == Outcome.LATE]
    assert {one.round for one in unfinished} == {29}
    assert result.late == len(unfinished) == 2  # of three workers, one had just brought the last update
    assert sum(one.wire_bytes_down or 0 for one in every) == result.bytes_down
    fingerprints = {one.version: one.fingerprint for one in rounds}
    assert len(some) == 60
    assert {one.outcome for one in some} == {Outcome.USED}
    assert all(one.received == fingerprints[one.base_version] for one in some)
    assert all(one.staleness == one.round - one.base_version for one in some)
    assert any(one.staleness for one in some)
    moments = sorted([(one.start_ns, 1) for one in some] + [(one.end_ns, -1) for one in some])
    assert max(sum(change for _, change in moments[:place]) for place in range(1, len(moments))) <= 3


def test_auto_takes_processes(tmp_path: Path) -> None:
    """The only executor whose clients work at the same time."""
    assert run(small(REAL, executor="auto")).executor == "processes"


@pytest.mark.parametrize("executor", ["vectorised", "sequential"])
def test_other_executors_are_refused_by_name(executor: str) -> None:
    """With both ways out."""
    with pytest.raises(JobError, match=rf'execute\.executor = "{executor}".*"processes", or execute\.clock'):
        small(REAL, executor=executor)


def test_a_worker_that_dies_costs_its_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The training goes on with another worker."""
    flag = tmp_path / "flag"
    flag.touch()
    monkeypatch.setenv("DYING_FLAG", str(flag))
    result = run(small({**REAL, "model.kind": "own_models:dying"}, executor="processes"), tmp_path)
    assert (result.failed, result.rounds) == (1, 10)
    with recorded(tmp_path) as reader:
        (failure,) = reader.failures()
    assert failure.kind == "worker died"


@pytest.mark.parametrize("kind", ["crash", "timeout", "nan-update"])
def test_a_client_that_fails_costs_its_own_part(kind: str, tmp_path: Path) -> None:
    """Recorded as what it is; the others go on."""
    faults = [{"kind": kind, "clients": [2], **({"strength": 0.05} if kind == "timeout" else {})}]
    result = run(small({**REAL, "codec.up": "fp16", "faults": faults}, executor="processes"), tmp_path)
    assert result.loss is not None
    assert math.isfinite(result.loss)
    with recorded(tmp_path) as reader:
        own = reader.participations(client="2")
        mine = [one for one in own if one.outcome != Outcome.LATE]  # at work when it ended
    assert {one.outcome for one in mine} <= {Outcome.DROPPED if kind == "timeout" else Outcome.FAILED}
    assert len(mine) == result.failed


def test_where_everybody_fails_the_training_ends() -> None:
    """With the reason of the last one, and not never."""
    faults = [{"kind": "crash", "share": 1.0}]
    with pytest.raises(TrainingError, match=r"step 0: of the last \d+ participations nothing came.*ClientCrashError"):
        run(small({**REAL, "faults": faults}, executor="processes"))
