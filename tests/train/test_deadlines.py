"""Rounds that do not wait for everybody, carried out: who is late is recorded and not used."""

from __future__ import annotations

import itertools
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_jobs import EXECUTORS, Spy, apart, recorded, run, small

from fedvitals.errors import TrainingError
from fedvitals.store import RunReader
from fedvitals.vocabulary import Outcome

VIRTUAL = {"execute.clock": "virtual"}
EVERYONE = {**VIRTUAL, "train.clients_per_round": 6}
SLOW = [{"kind": "slow-compute", "clients": [0], "strength": 1e6}]  # 47 seconds


def _outcomes(reader: RunReader, round: int = 0) -> dict[str, str]:
    return {one.client: one.outcome for one in reader.participations(round=round)}


def test_who_is_not_done_by_the_deadline_is_late(tmp_path: Path) -> None:
    """Recorded whole with its own end, not aggregated, and the round is no longer than its deadline."""
    spy = Spy()
    result = run(small({**EVERYONE, "train.rounds": 1, "server.deadline_s": 5, "faults": SLOW}), tmp_path, hook=spy)
    assert result.late == 1
    assert result.failed == 0
    assert list(spy.updates[0]) == ["1", "2", "3", "4", "5"]
    with recorded(tmp_path) as reader:
        assert _outcomes(reader) == {"0": "late"} | dict.fromkeys("12345", "used")
        late = next(one for one in reader.participations(round=0) if one.client == "0")
        (only,) = reader.rounds()
    assert (only.selected, only.used, only.failed) == (6, 5, 0)
    assert (only.start_ns, only.end_ns) == (0, 5 * 10**9)
    assert late.applied_version is None
    assert late.staleness is None
    assert late.duration_s == pytest.approx(sum(late.phases_s.values()))
    assert late.duration_s > 40
    assert late.update_norm is not None  # it did arrive, after all
    assert late.wire_bytes_up is not None


def test_a_late_client_is_asked_again_when_it_is_done(tmp_path: Path) -> None:
    """Never while it is still at the work of an earlier round."""
    faults = [{"kind": "slow-compute", "clients": [0], "strength": 15_000.0}]
    run(small({**EVERYONE, "train.rounds": 24, "server.deadline_s": 0.5, "faults": faults}), tmp_path)
    with recorded(tmp_path) as reader:
        own = sorted((one for one in reader.participations() if one.client == "0"), key=lambda one: one.start_ns)
        rounds = {one.number: one.start_ns for one in reader.rounds()}
    assert len(own) >= 2
    for one, after in itertools.pairwise(own):
        assert one.outcome == Outcome.LATE
        assert one.end_ns <= after.start_ns
        missed = [number for number in range(one.round + 1, after.round) if rounds[number] >= one.end_ns]
        assert missed == []
    assert max(after.round - one.round for one, after in itertools.pairwise(own)) > 1


def test_nobody_in_time_ends_the_run_with_its_records(tmp_path: Path) -> None:
    """As when every client fails: one clear error, and what happened is in the store."""
    with pytest.raises(
        TrainingError, match=r"round 0: none of 6 clients was done within server.deadline_s = 0.01; the"
    ):
        run(small({**EVERYONE, "server.deadline_s": 0.01}), tmp_path)
    with recorded(tmp_path) as reader:
        assert _outcomes(reader) == dict.fromkeys("012345", "late")
        assert reader.rounds()[0].used == 0
        assert reader.rounds()[0].end_ns == 10**7


def test_the_first_to_arrive_are_taken(tmp_path: Path) -> None:
    """With half again as many asked as needed, the slow ones are late and the round ends with the last it needed."""
    spy = Spy()
    slow = [{"kind": "slow-link", "clients": [1, 4], "strength": 1000.0}]
    job = small({**VIRTUAL, "train.rounds": 1, "server.over_select": 1.5, "faults": slow})
    assert job.asked == 6
    result = run(job, tmp_path, hook=spy)
    assert result.late == 2
    assert set(spy.updates[0]) == set("0235")
    with recorded(tmp_path) as reader:
        assert {client for client, outcome in _outcomes(reader).items() if outcome == "late"} == {"1", "4"}
        (only,) = reader.rounds()
        used = [one for one in reader.participations(round=0) if one.outcome == "used"]
    assert (only.selected, only.used) == (6, 4)
    assert only.end_ns == max(one.end_ns for one in used)


def test_equals_are_taken_in_the_order_of_selection() -> None:
    """Six clients with as much to do on equal devices, for four places."""
    spy = Spy()
    run(small({**VIRTUAL, "data.partition": "iid", "train.rounds": 1, "server.over_select": 1.5}), hook=spy)
    assert list(spy.updates[0]) == ["0", "1", "2", "3"]


def test_a_silent_client_is_given_up_with_the_round(tmp_path: Path) -> None:
    """An hour of silence is cut by the deadline, or by having enough without it."""
    faults = [{"kind": "timeout", "clients": [3], "strength": 3600.0}]
    run(small({**EVERYONE, "train.rounds": 1, "server.deadline_s": 30, "faults": faults}), tmp_path / "deadline")
    run(small({**VIRTUAL, "train.rounds": 1, "server.over_select": 1.5, "faults": faults}), tmp_path / "enough")
    for folder, longest in (("deadline", 30.0), ("enough", 1.0)):
        with recorded(tmp_path / folder) as reader:
            silent = next(one for one in reader.participations(round=0) if one.client == "3")
            (only,) = reader.rounds()
            (failure,) = reader.failures()
        assert silent.outcome == Outcome.DROPPED
        assert silent.end_ns == only.end_ns
        assert silent.duration_s <= longest
        assert silent.phases_s["wait"] == pytest.approx(silent.duration_s, abs=1e-8)
        assert failure.message.startswith("no answer by the end of the round, after ")


POLICY: dict[str, Any] = {
    **EVERYONE,
    "train.clients_per_round": 4,
    "train.rounds": 3,
    "server.over_select": 1.5,
    "server.deadline_s": 20.0,
    "network.profile": "mobile",
    "faults": [*SLOW, {"kind": "crash", "clients": [5]}],
}


@pytest.mark.parametrize("executor", EXECUTORS)
def test_every_executor_comes_to_the_same(executor: str, tmp_path: Path) -> None:
    """The same clients in time, at the same instants, and the same model up to the last bits."""
    first = run(small(POLICY), tmp_path / "first")
    other = run(small(POLICY, executor=executor), tmp_path / "other")
    assert first.late > 0
    assert (other.late, other.failed) == (first.late, first.failed)
    assert apart(first, other) < 1e-5
    if executor != "vectorised":
        assert other.weights_sha256 == first.weights_sha256
    assert _instants(tmp_path / "first") == _instants(tmp_path / "other")


def _instants(folder: Path) -> list[tuple[Any, ...]]:
    with recorded(folder) as reader:
        clients = [
            (one.round, one.client, one.outcome, one.start_ns, one.end_ns, one.metrics)
            for one in reader.participations()
        ]
        assert clients
        return [*sorted(clients, key=str), *((one.number, one.start_ns, one.end_ns) for one in reader.rounds())]


@given(deadline=st.floats(0.05, 50.0), over=st.sampled_from([1.0, 1.2, 1.5]), seed=st.integers(0, 1000))
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_deadline_bounds_every_round(
    deadline: float, over: float, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever the devices: from the clients' start to the end of the waiting, and nobody late is used."""
    folder, spy = tmp_path_factory.mktemp("runs"), Spy()
    changes = {**POLICY, "seed": seed, "server.deadline_s": deadline, "server.over_select": over, "faults": SLOW}
    with suppress(TrainingError):  # nobody was in time
        run(small({**changes, "network.profile": "broadband"}), folder, hook=spy)
    with recorded(folder) as reader:
        rounds, some = reader.rounds(), reader.participations()
        waits = [span for span in reader.spans() if span.name in ("select", "aggregate", "evaluate", "wait")]
    for one in rounds:
        assert one.end_ns is not None
        own = sum((span.end_ns or 0) - span.start_ns for span in waits if span.round == one.number)
        assert one.end_ns - one.start_ns - own <= deadline * 1e9 + 1
        used = {part.client for part in some if part.round == one.number and part.outcome == Outcome.USED}
        assert len(used) == one.used
        if one.number < len(spy.updates):
            assert used == set(spy.updates[one.number])


def test_a_policy_that_changes_nothing_changes_nothing(tmp_path: Path) -> None:
    """A deadline that everyone keeps gives the records and the model of none."""
    run(small(EVERYONE), tmp_path / "without")
    run(small({**EVERYONE, "server.deadline_s": 1000}), tmp_path / "with")
    assert _instants(tmp_path / "without") == _instants(tmp_path / "with")
    kept = run(small({**EVERYONE, "server.deadline_s": 1000})).weights_sha256
    assert kept == run(small({**EVERYONE, "execute.clock": "real"})).weights_sha256
