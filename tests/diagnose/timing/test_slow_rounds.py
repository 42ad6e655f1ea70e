"""FL202, FL203, FL205: rounds that wait, aggregate or grow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from charted import Clock, found, looped, trained

from fedvitals.run import Run
from fedvitals.vocabulary import Severity


def rounds(
    client_s: Callable[[int], float],
    aggregate_s: Callable[[int], float] = lambda n: 0.01,
    wait_s: float = 0.0,
    count: int = 24,
) -> Callable[[Run, Clock], None]:
    def loop(run: Run, clock: Clock) -> None:
        for number in range(count):
            with run.round(number) as rnd:
                for client in range(3):
                    with rnd.client(client):
                        clock.go_on(client_s(number))
                with rnd.phase("wait"):
                    clock.go_on(wait_s)
                with rnd.phase("aggregate"):
                    clock.go_on(aggregate_s(number))

    return loop


def wave(number: int) -> float:
    return 1 + 0.2 * float(np.sin(5.0 * number))


def test_a_server_that_waits(tmp_path: Path) -> None:
    """More than half of the rounds' time; a quarter is none."""
    (one,) = found(looped(tmp_path / "a", rounds(wave, wait_s=5.0)), "FL202")
    assert one.evidence["whose"] == "server"
    assert found(looped(tmp_path / "b", rounds(wave, wait_s=1.0)), "FL202") == ()


def test_clients_that_wait(tmp_path: Path) -> None:
    """By their own phase."""

    def loop(run: Run, clock: Clock) -> None:
        for number in range(4):
            with run.round(number) as rnd, rnd.client("a") as c:
                clock.go_on(1.0)
                with c.phase("wait"):
                    clock.go_on(4.0)

    (one,) = found(looped(tmp_path, loop), "FL202")
    assert (one.evidence["whose"], one.evidence["waited_s"]) == ("clients", 16.0)


def test_idling_for_the_slowest_is_folded_under_its_cause(tmp_path: Path) -> None:
    """A straggler explains that the others wait."""
    chart = trained(
        tmp_path, {"train.clients_per_round": 20}, [{"kind": "slow-compute", "clients": [3], "strength": 80}]
    )
    (one,) = found(chart, "FL201", "FL202")
    assert (one.code, [symptom.code for symptom in one.symptoms]) == ("FL201", ["FL202"])


def test_aggregation_of_more_than_half(tmp_path: Path) -> None:
    """From the round on in which it began; one slow aggregation is none."""
    (one,) = found(looped(tmp_path / "a", rounds(wave, lambda n: 6.0 if n >= 10 else 0.1)), "FL203")
    assert one.rounds == tuple(range(10, 24))
    assert found(looped(tmp_path / "b", rounds(wave, lambda n: 9.0 if n == 7 else 0.1)), "FL203") == ()


def test_aggregation_that_stepped_up(tmp_path: Path) -> None:
    """A quarter of the round, but a hundred times what it was."""
    (one,) = found(looped(tmp_path, rounds(wave, lambda n: 1.0 + 0.01 * n if n >= 12 else 0.01 + 0.0001 * n)), "FL203")
    assert min(one.rounds) == 12
    assert one.evidence["share"] == pytest.approx(0.27, abs=0.1)
    assert "before" in one.why


def test_rounds_that_grow_all_the_time(tmp_path: Path) -> None:
    """A rise of a tenth a round is found with its slope; a wave is not."""
    (one,) = found(looped(tmp_path / "a", rounds(lambda n: wave(n) + 0.1 * n)), "FL205")
    assert one.severity is Severity.WARNING
    assert one.evidence["slope_s"] == pytest.approx(0.1, rel=0.3)
    assert found(looped(tmp_path / "b", rounds(wave)), "FL205") == ()


def test_a_step_is_worth_knowing(tmp_path: Path) -> None:
    """With the round in which it came."""
    (one,) = found(looped(tmp_path, rounds(lambda n: wave(n) * (3 if n >= 14 else 1))), "FL205")
    assert (one.severity, one.evidence["from_round"]) == (Severity.INFO, 14)
