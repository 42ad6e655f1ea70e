"""Rounds that do not wait for everybody on the real clock: each client has a worker, and who is late is stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_jobs import Spy, recorded, run, small

from fedvitals.errors import TrainingError

EACH: dict[str, Any] = {"train.clients_per_round": 6, "execute.workers": 6}
FOR_EVER = [{"kind": "slow-compute", "clients": [0], "strength": 1e7}]  # hours


@pytest.mark.parametrize(
    "impatient",
    [{"server.deadline_s": 2.0, "train.rounds": 1}, {"train.clients_per_round": 5, "server.over_select": 1.2}],
    ids=["deadline", "first five of six"],
)
def test_who_is_late_is_stopped_and_not_used(impatient: dict[str, Any], tmp_path: Path) -> None:
    """Recorded as late and as no failure; the others are used, and each round has its workers again."""
    spy = Spy()
    result = run(small({**EACH, **impatient, "faults": FOR_EVER}, executor="processes"), tmp_path, hook=spy)
    assert (result.late, result.failed) == (result.rounds, 0)
    assert all(sorted(updates) == ["1", "2", "3", "4", "5"] for updates in spy.updates)
    with recorded(tmp_path) as reader:
        own, failures, rounds = list(reader.participations(client="0")), reader.failures(), list(reader.rounds())
    assert [one.outcome for one in own] == ["late"] * result.rounds
    assert all(one.update_norm is None and one.wire_bytes_down for one in own)
    assert failures == []
    assert [(one.selected, one.used, one.failed) for one in rounds] == [(6, 5, 0)] * result.rounds
    assert all(one.end_ns <= (rounds[one.round].end_ns or 0) for one in own)


def test_only_the_first_count(tmp_path: Path) -> None:
    """Three of six: never more, whoever they are."""
    job = {"train.clients_per_round": 3, "server.over_select": 2.0, "execute.workers": 6, "train.rounds": 4}
    result = run(small(job, executor="processes"), tmp_path)
    with recorded(tmp_path) as reader:
        rounds = list(reader.rounds())
    assert [(one.selected, one.used) for one in rounds] == [(6, 3)] * 4
    assert result.late == 12


def test_without_late_clients_the_model_is_the_same() -> None:
    """A deadline that all meet changes nothing, to the bit."""
    plain = run(small(EACH, executor="processes"))
    assert run(small({**EACH, "server.deadline_s": 600.0}, executor="processes")).weights_sha256 == plain.weights_sha256


def test_a_deadline_that_nobody_meets_is_named() -> None:
    """With the first of them."""
    faults = [{"kind": "slow-compute", "share": 1.0, "strength": 1e7}]
    with pytest.raises(TrainingError, match=r"none of 6 clients was done within server\.deadline_s = 0\.2; the first"):
        run(small({**EACH, "server.deadline_s": 0.2, "faults": faults}, executor="processes"))


def test_a_client_that_fails_is_not_late(tmp_path: Path) -> None:
    """It is recorded with its reason, and another takes its place among the first."""
    job = {"train.clients_per_round": 5, "server.over_select": 1.2, "execute.workers": 6}
    result = run(small({**job, "faults": [{"kind": "crash", "clients": [3]}]}, executor="processes"), tmp_path)
    assert (result.failed, result.late) == (2, 0)
    with recorded(tmp_path) as reader:
        assert {one.client for one in reader.failures()} == {"3"}
