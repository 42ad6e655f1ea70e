"""FL901 to FL904: what the recorder dropped and cost, clocks that differ, and a store that is full."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from charted import Clock, alarms, diagnosed, found, looped, model, trained

import fedvitals
from fedvitals.diagnose.chart import Chart
from fedvitals.run import Run
from fedvitals.vocabulary import Severity, Status


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Chart:
    return trained(tmp_path_factory.mktemp("runs"), {"train.rounds": 6})


def with_health(chart: Chart, **health: Any) -> Chart:
    return replace(chart, run=replace(chart.run, health={**chart.run.health, **health}))


def test_a_healthy_recording(chart: Chart) -> None:
    """Says nothing of itself but that a short run is no measure of its cost."""
    assert alarms(chart, "FL9") == []
    assert found(chart, "FL901", "FL904") == ()


def test_dropped_records_are_counted(chart: Chart) -> None:
    """Kind by kind; and places where recording failed."""
    one, other = found(with_health(chart, dropped={"StepBlock": 3, "Blob": 2}, troubles={"watch": 4}), "FL901")
    assert one.evidence["dropped"] == {"StepBlock": 3, "Blob": 2}
    assert other.evidence["troubles"] == {"watch": 4}


def test_a_run_that_goes_on_has_no_health_yet(chart: Chart) -> None:
    """Not observable, never fine."""
    going = replace(chart, run=replace(chart.run, status=Status.RUNNING, health={}))
    assert {"FL901", "FL902"} <= set(diagnosed(going, "FL9").not_observable)


@pytest.mark.parametrize(
    ("overhead", "elapsed_s", "severity"),
    [(0.01, 100.0, None), (0.03, 100.0, Severity.INFO), (0.08, 100.0, Severity.WARNING), (0.08, 1.0, None)],
)
def test_overhead_is_judged_once_it_is_steady(
    chart: Chart, overhead: float, elapsed_s: float, severity: Severity | None
) -> None:
    """A little above the budget is told of, far above is an alarm, and the start of a short run is neither."""
    told = diagnosed(with_health(chart, overhead=overhead, elapsed_s=elapsed_s), "FL902")
    assert [one.severity for one in told.findings] == ([] if severity is None else [severity])
    assert ("FL902" in told.not_observable) == (elapsed_s == 1.0)


def test_a_clock_that_is_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour, by the ticket's way out and back; the client whose clock is right is not named."""
    true_time = time.time_ns

    def loop(run: Run, clock: Clock) -> None:
        for number in range(3):
            with run.round(number, model=model()) as rnd:
                for client, behind_s in (("right", 0), ("behind", 3600)):
                    ticket = rnd.ticket(client)
                    monkeypatch.setattr(time, "time_ns", lambda by=behind_s: true_time() - by * 10**9)
                    with fedvitals.client_session(ticket, model=model()) as c:
                        c.submit(model(1).state_dict())
                    data = c.to_bytes()
                    monkeypatch.setattr(time, "time_ns", true_time)
                    rnd.merge(data, client=client)

    (one,) = found(looped(tmp_path, loop), "FL903")
    assert (one.clients, one.severity) == (("behind",), Severity.WARNING)
    assert one.evidence["skew_s"] == pytest.approx(-3600, abs=5)


def test_a_store_that_fills_up(chart: Chart) -> None:
    """Near the cap, beyond it, and on the way there while the run goes on."""
    cap = 4096 * 2**20
    (one,) = found(replace(chart, size_bytes=int(0.95 * cap)), "FL904")
    assert (one.severity, one.evidence["full"]) == (Severity.WARNING, False)
    (one,) = found(replace(chart, size_bytes=int(1.1 * cap)), "FL904")
    assert one.evidence["full"] is True
    config = {**chart.run.config, "train": {"rounds": 60}}
    going = replace(chart, size_bytes=cap // 2, run=replace(chart.run, status=Status.RUNNING, config=config))
    (one,) = found(going, "FL904")
    assert (one.severity, one.evidence["round"]) == (Severity.INFO, 12)
