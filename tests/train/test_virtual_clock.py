"""The virtual clock: slowness is written down instead of waited for, the same every time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from small_jobs import EXECUTORS, recorded, run, small

from fedvitals.train.device import NOMINAL
from fedvitals.vocabulary import Outcome, Participation

Changes = dict[str, Any]
EVERYONE = {"execute.clock": "virtual", "train.clients_per_round": 6}
SLOW = [
    {"kind": "slow-compute", "clients": [0], "strength": 1000.0},
    {"kind": "slow-loader", "clients": [1], "strength": 500.0},
    {"kind": "slow-link", "clients": [2], "strength": 100.0},
    {"kind": "timeout", "clients": [3], "strength": 3600.0},
    {"kind": "slow-aggregation", "strength": 1800.0},
]


@pytest.fixture
def no_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sleeps for longer than a scheduler's blink fails the test."""
    real = time.sleep

    def awake(seconds: float) -> None:
        assert seconds < 0.001, f"slept for {seconds} s on the virtual clock"
        real(seconds)

    monkeypatch.setattr(time, "sleep", awake)


def _first_round(folder: Path) -> dict[str, Participation]:
    with recorded(folder) as reader:
        return {one.client: one for one in reader.participations(round=0)}


@pytest.mark.usefixtures("no_sleep")
@pytest.mark.parametrize("executor", EXECUTORS)
def test_nobody_waits(executor: str, tmp_path: Path) -> None:
    """An hour of silence and half an hour of aggregation pass on the clock alone, and both are in the records."""
    result = run(small({**EVERYONE, "faults": SLOW}, executor=executor), tmp_path)
    assert result.failed == 2  # the silent client, once a round
    with recorded(tmp_path) as reader:
        rounds = reader.rounds()
        aggregated = [span for span in reader.spans() if span.name == "aggregate"]
    assert [(one.start_ns, one.end_ns) for one in rounds] == [
        (0, 5400 * 10**9),
        (5400 * 10**9, 10800 * 10**9),
    ]
    assert [((one.end_ns or 0) - one.start_ns) / 1e9 for one in aggregated] == [1800.0, 1800.0]


def test_each_kind_of_slowness_is_the_right_clients_phase(tmp_path: Path) -> None:
    """Training, loading, transfers and waiting are stretched by the factor said, of nobody else."""
    run(small({**EVERYONE, "data.partition": "iid", "faults": SLOW}), tmp_path)
    found = _first_round(tmp_path)
    device, honest = NOMINAL, found["4"]
    assert honest.steps is not None
    assert honest.wire_bytes_up is not None
    alone_s = device.train_s(honest.steps, 32 * 2 / honest.steps, 12 * 8 + 8 + 8 * 4 + 4)
    link_s = device.upload_s(honest.wire_bytes_up)
    assert honest.phases_s == pytest.approx({"download": link_s, "load": 0.0, "train": alone_s, "upload": link_s})
    for client, stretched in {
        "0": {"train": 1000 * alone_s},
        "1": {"load": 499 * alone_s},
        "2": {"download": 100 * link_s, "upload": 100 * link_s},
    }.items():
        assert found[client].phases_s == pytest.approx({**honest.phases_s, **stretched})
    assert found["5"].phases_s == honest.phases_s
    assert all(one.duration_s == pytest.approx(sum(one.phases_s.values())) for one in found.values())


def test_a_client_that_never_answers_is_waited_for(tmp_path: Path) -> None:
    """Dropped, with the seconds it was given in its record and in its failure."""
    run(small({**EVERYONE, "faults": SLOW}), tmp_path)
    silent = _first_round(tmp_path)["3"]
    assert silent.outcome == Outcome.DROPPED
    assert silent.phases_s == {"wait": 3600.0}
    assert silent.duration_s == 3600.0
    with recorded(tmp_path) as reader:
        assert {one.message for one in reader.failures()} == {"no answer within 3600 s"}


@pytest.mark.parametrize("executor", EXECUTORS)
def test_times_are_the_same_twice_and_on_every_executor(executor: str, tmp_path: Path) -> None:
    """Rounds, participations, spans and evaluations: to the nanosecond. A reckoned time is nobody's share."""
    job = small({**EVERYONE, "faults": SLOW})
    run(job, tmp_path / "plain")
    for folder in ("once", "twice"):
        run(job.replaced({"execute.executor": executor}), tmp_path / folder)
    assert _times(tmp_path / "once") == _times(tmp_path / "twice") == _times(tmp_path / "plain")


def _times(folder: Path) -> list[tuple[Any, ...]]:
    with recorded(folder) as reader:
        some = reader.participations()
        clients = sorted((one.round, one.client, one.start_ns, one.end_ns, one.attributed) for one in some)
        rounds = [(one.number, one.start_ns, one.end_ns) for one in reader.rounds()]
        spans = sorted((one.name, one.start_ns, one.end_ns) for one in reader.spans())
        judged = [(one.round, one.at_ns) for one in reader.evaluations()]
    assert len(clients) == 12
    return [*clients, *rounds, *spans, *judged]


def test_a_round_lasts_as_long_as_its_slowest(tmp_path: Path) -> None:
    """Clients work side by side from the round's start."""
    run(small({**EVERYONE, "faults": SLOW[:3]}), tmp_path)
    with recorded(tmp_path) as reader:
        for number in (0, 1):
            begin, end = reader.rounds()[number].start_ns, reader.rounds()[number].end_ns
            some = reader.participations(round=number)
            assert {one.start_ns for one in some} == {begin}
            assert max(one.end_ns for one in some) == end


def test_virtual_time_changes_no_weight() -> None:
    """The same model as on the real clock."""
    assert run(small(EVERYONE)).weights_sha256 == run(small({**EVERYONE, "execute.clock": "real"})).weights_sha256
