"""FL104, FL105, FL106: rounds that stall, rounds of few clients, rounds of none."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from charted import Clock, diagnosed, found, looped, model, trained

from fedvitals.run import Run
from fedvitals.vocabulary import Severity, Status


def rounds(lengths: list[float], used: Callable[[int], int] = lambda number: 4) -> Callable[[Run, Clock], None]:
    """Rounds that take so long, with four clients of whom the first so many are used; the last takes all the time."""

    def loop(run: Run, clock: Clock) -> None:
        for number, length in enumerate(lengths):
            with run.round(number, model=model()) as rnd:
                for client in range(4):
                    with suppress(ValueError), rnd.client(client) as c:
                        clock.go_on(length if client == 3 else 0.0)
                        if client >= used(number):
                            raise ValueError("no luck")
                        c.submit(model(client).state_dict())

    return loop


def test_a_run_that_was_cut_off_in_a_round(tmp_path: Path) -> None:
    """Far beyond its rounds' time it had stalled, and who ended it knew; else only the process ended (FL109)."""
    for length, stalled in ((1.0, 0), (50.0, 1)):
        chart = looped(tmp_path / str(length), rounds([1.0] * 5 + [length]))
        broken = chart.rounds[-1]._replace(end_ns=None)
        cut = replace(chart, rounds=(*chart.rounds[:-1], broken), run=replace(chart.run, status=Status.CUT_OFF))
        (one,) = found(cut, "FL104", "FL109")
        assert (one.code, one.severity, one.rounds) == ("FL104" if stalled else "FL109", Severity.CRITICAL, (5,))
        assert [symptom.code for symptom in one.symptoms] == ["FL109"] * stalled
        assert "4 of 4 clients were heard of" in one.why


def test_a_running_round_stalls_only_beyond_the_runs_own_times(tmp_path: Path) -> None:
    """By the last word of the run: at twice the usual it is going on, at fifty times it has stalled."""
    for length, stalled in ((2.0, 0), (50.0, 1)):
        chart = looped(tmp_path / str(length), rounds([1.0, 1.1, 0.9, 1.0, 1.0, length]))
        begun = chart.rounds[-1]._replace(end_ns=None)
        going = replace(chart, rounds=(*chart.rounds[:-1], begun), run=replace(chart.run, status=Status.RUNNING))
        assert len(found(going, "FL104")) == stalled


def test_a_long_round_names_who_was_waited_for(tmp_path: Path) -> None:
    """A warning when it took most of the run's time, something to know when it did not; the first is not judged."""
    (one,) = found(looped(tmp_path / "a", rounds([1.0] * 6 + [60.0])), "FL104")
    assert (one.severity, one.rounds, one.clients) == (Severity.WARNING, (6,), ("3",))
    (one,) = found(looped(tmp_path / "b", rounds([1.0] * 40 + [20.0])), "FL104")
    assert one.severity is Severity.INFO
    assert found(looped(tmp_path / "c", rounds([60.0] + [1.0] * 6)), "FL104") == ()


def test_a_machine_that_slept_is_nobodys_fault(tmp_path: Path) -> None:
    """Where all clients share a machine, who was at work in one long round is told of and not held responsible; who was
    in two is."""
    for name, lengths, named in (("once", [60.0, 1.0], ()), ("twice", [60.0, 60.0], ("3",))):
        chart = looped(tmp_path / name, rounds([1.0] * 8 + lengths))
        shared = replace(chart, run=replace(chart.run, environment={**chart.run.environment, "executor": "serial"}))
        (one,) = found(shared, "FL104")
        assert (one.severity, one.clients) == (Severity.WARNING, named)
        assert "client 3 took" in one.why


def test_most_clients_missing(tmp_path: Path) -> None:
    """One of four used is well below; three of four is not."""
    chart = looped(tmp_path / "a", rounds([1.0] * 6, lambda number: 1 if number > 3 else 3))
    (one,) = found(chart, "FL105")
    assert (one.severity, one.rounds, one.evidence["used"]) == (Severity.WARNING, (4, 5), 1)


def test_two_clients_a_round_by_choice(tmp_path: Path) -> None:
    """Is told of, once, as something to know."""
    (one,) = found(trained(tmp_path, {"train.clients_per_round": 2, "train.rounds": 6}), "FL105")
    assert (one.severity, one.evidence["used"]) == (Severity.INFO, 2)
    assert one.why == "6 of 6 rounds averaged the updates of 2 of 9 clients: their result is that of who was asked"
    assert "ask more clients" in one.next[0].text


def test_nobody_else_can_be_asked(tmp_path: Path) -> None:
    """Of a run with two clients it is told without the advice to ask more."""
    chart = trained(tmp_path, {"data.clients": 2, "train.clients_per_round": 2, "train.rounds": 3})
    (one,) = found(chart, "FL105")
    assert one.why == "3 of 3 rounds averaged the updates of 2 of 2 clients: a model is made of them alone"
    assert "ask more" not in one.next[0].text


def test_nobody_is_used_and_the_run_completes(tmp_path: Path) -> None:
    """It is critical, with the rounds and the commonest reason."""
    chart = looped(tmp_path, rounds([1.0] * 4, lambda number: 0 if number in (1, 2) else 4))
    assert chart.run.status is Status.FINISHED
    (one,) = found(chart, "FL106")
    assert (one.severity, one.rounds) == (Severity.CRITICAL, (1, 2))
    assert one.evidence["message"] == "no luck"


def test_a_job_whose_clients_all_fail(tmp_path: Path) -> None:
    """The engine gives up; the finding says why, and that few are left is folded under it."""
    everyone = {"kind": "crash", "clients": list(range(20)), "from_round": 3}
    chart = trained(tmp_path, faults=[everyone])
    codes = [one.code for one in found(chart, "FL1")]
    assert codes[0] == "FL106"
    assert "FL105" not in codes


def test_runs_without_rounds_cannot_be_judged(tmp_path: Path) -> None:
    """They say so."""
    chart = looped(tmp_path, lambda run, clock: None)
    assert set(diagnosed(chart, "FL104", "FL105", "FL106").not_observable) == {"FL104", "FL105", "FL106"}
