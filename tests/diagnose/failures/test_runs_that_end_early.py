"""FL109: a run that an exception ended, or whose process is gone, is never one in which nothing is wrong."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from charted import Clock, found, last, looped, model, trained

import fedvitals
from fedvitals.diagnose.chart import Chart
from fedvitals.run import Run
from fedvitals.settings import Settings
from fedvitals.vocabulary import Severity, Status


def _ended_by(folder: Path, error: BaseException, place: str) -> Chart:
    """The chart of a run of up to five rounds that this ends at this place of its third round, or after it."""
    settings = Settings(dir=str(folder), resources_every_s=0.0)

    def at(number: int, here: str) -> None:
        if number == 2 and here == place:
            raise error

    with suppress(type(error)), fedvitals.start("early", settings=settings) as run:
        for number in range(5):
            with run.round(number, model=model()) as rnd:
                for client in range(4):
                    with rnd.client(client) as c:
                        c.submit(model(10 * number + client).state_dict())
                        at(number, f"client {client}")
                with rnd.phase("aggregate"):
                    at(number, "server")
            at(number, "between")
    return last(settings)


@pytest.mark.parametrize(
    ("place", "clients", "when"),
    [("server", (), "in round 2"), ("client 3", ("3",), "in round 2"), ("between", (), "after round 2")],
)
def test_an_exception_ends_a_run(tmp_path: Path, place: str, clients: tuple[str, ...], when: str) -> None:
    """It is critical wherever it was raised, with its words; a client that raised it is told once, below."""
    (one,) = found(_ended_by(tmp_path, ValueError("no average of these"), place), "FL1")
    assert (one.code, one.severity, one.rounds, one.clients) == ("FL109", Severity.CRITICAL, (2,), clients)
    assert f"ended {when} by an exception" in one.why
    assert one.why.endswith("ValueError: no average of these")
    assert [symptom.code for symptom in one.symptoms] == ["FL101"] * len(clients)


def test_the_line_that_raised_is_told(tmp_path: Path) -> None:
    """Of an exception inside a round, whose traceback was kept."""
    (one,) = found(_ended_by(tmp_path, ValueError("no"), "server"), "FL109")
    assert "at test_runs_that_end_early.py:" in one.why
    assert "ValueError: no" in one.evidence["traceback"]


def test_who_presses_ctrl_c_knows(tmp_path: Path) -> None:
    """It is told of, and nothing is wrong."""
    (one,) = found(_ended_by(tmp_path, KeyboardInterrupt(), "between"), "FL109")
    assert (one.severity, one.why) == (Severity.INFO, "the run was ended after round 2 by hand: KeyboardInterrupt")


def test_a_process_that_is_gone_between_rounds(tmp_path: Path) -> None:
    """No round is open, and the run is not over all the same; of a run without any round, too."""

    def loop(run: Run, clock: Clock) -> None:
        with run.round(0, model=model()):
            pass

    for name, body, when in (("one", loop, "after round 0"), ("none", lambda run, clock: None, "before its first")):
        chart = looped(tmp_path / name, body)
        (one,) = found(replace(chart, run=replace(chart.run, status=Status.CUT_OFF)), "FL109")
        assert one.severity is Severity.CRITICAL
        assert when in one.why


def test_a_run_that_ended_in_order(tmp_path: Path) -> None:
    """Nothing is said of it, nor of one that is going on."""
    chart = trained(tmp_path, {"train.rounds": 2})
    assert found(chart, "FL109") == ()
    assert found(replace(chart, run=replace(chart.run, status=Status.RUNNING)), "FL109") == ()


def test_a_job_whose_clients_all_failed_was_ended_by_that(tmp_path: Path) -> None:
    """The cause stands above."""
    everyone = {"kind": "crash", "clients": list(range(20)), "from_round": 3}
    (one,) = found(trained(tmp_path, faults=[everyone]), "FL1")
    assert one.code == "FL106"
    assert "FL109" in [symptom.code for symptom in one.symptoms]
