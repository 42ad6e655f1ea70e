"""Real and virtual time."""

from __future__ import annotations

import time

import pytest

from fedvitals.train.clock import Clock, RealClock, VirtualClock


def test_the_virtual_clock_moves_when_told_and_takes_no_time() -> None:
    """A thousand virtual years of sleep return at once, and instants are exact."""
    clock = VirtualClock()
    assert clock.now_ns() == 0
    clock.advance(0.25)
    clock.sleep(1e-9)
    assert clock.now_ns() == 250_000_001
    clock.sleep(3e10)
    assert clock.now_ns() == 30_000_000_000_250_000_001


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_the_virtual_clock_refuses_to_go_back(seconds: float) -> None:
    """Negative and impossible spans are mistakes, and leave the clock as it was."""
    clock = VirtualClock()
    with pytest.raises(ValueError, match="cannot move"):
        clock.advance(seconds)
    assert clock.now_ns() == 0


def test_the_real_clock_is_the_machines() -> None:
    """It lies between two readings of perf_counter_ns, and its sleep lets time pass."""
    clock: Clock = RealClock()
    before = time.perf_counter_ns()
    clock.sleep(0.001)
    assert before + 1_000_000 <= clock.now_ns() <= time.perf_counter_ns()


def test_both_are_clocks() -> None:
    """The engine may hold either."""
    assert isinstance(RealClock(), Clock)
    assert isinstance(VirtualClock(), Clock)
