"""The governor keeps recording inside its budget: exact, on a clock that the test moves."""

from __future__ import annotations

import pytest

from fedvitals.capture.governor import LONGEST_STRIDE, REVIEW_EVERY_NS, Governor
from fedvitals.testing import FakeClock


def lived(governor: Governor, clock: FakeClock, seconds: float, spent: float) -> None:
    """Some time passes, of which recording took so much."""
    clock.advance(seconds)
    governor.spent_ns += round(spent * 1e9)
    governor.review()


def test_below_half_of_the_budget_it_looks_twice_as_often() -> None:
    """Down to every step, one review at a time."""
    clock = FakeClock()
    governor = Governor(0.02, "governed", now_ns=clock.now_ns)
    strides = []
    for _ in range(18):
        lived(governor, clock, 1.0, 0.0099)
        strides.append(governor.stride)
    assert strides == [max(LONGEST_STRIDE >> n, 1) for n in range(1, 19)]
    assert governor.overhead() == pytest.approx(0.0099)


def test_above_nine_tenths_of_the_budget_it_looks_half_as_often() -> None:
    """Up to the longest stride."""
    clock = FakeClock()
    governor = Governor(0.02, "governed", now_ns=clock.now_ns)
    governor.stride = LONGEST_STRIDE >> 3
    strides = []
    for _ in range(5):
        lived(governor, clock, 1.0, 0.019)
        strides.append(governor.stride)
    assert strides == [LONGEST_STRIDE >> 2, LONGEST_STRIDE >> 1, LONGEST_STRIDE, LONGEST_STRIDE, LONGEST_STRIDE]


def test_between_the_two_it_stays_as_it_is() -> None:
    """No swinging to and fro."""
    clock = FakeClock()
    governor = Governor(0.02, "governed", now_ns=clock.now_ns)
    governor.stride = 64
    lived(governor, clock, 1.0, 0.014)
    assert governor.stride == 64


def test_a_costly_start_is_paid_back_first() -> None:
    """What the whole run cost counts, not only the last stretch."""
    clock = FakeClock()
    governor = Governor(0.02, "governed", now_ns=clock.now_ns)
    governor.stride = 64
    lived(governor, clock, 1.0, 0.2)
    lived(governor, clock, 1.0, 0.0)
    assert governor.stride == 256
    lived(governor, clock, 100.0, 0.0)
    assert governor.stride == 128


def test_the_writers_time_counts() -> None:
    """Its CPU is taken from the training."""
    clock = FakeClock()
    used = [0.0]
    governor = Governor(0.02, "governed", writer_cpu_s=lambda: used[0], now_ns=clock.now_ns)
    governor.stride = 64
    used[0] = 0.1
    lived(governor, clock, 1.0, 0.0)
    assert governor.stride == 128
    assert governor.overhead() == pytest.approx(0.1)


def test_reviews_that_come_too_soon_change_nothing() -> None:
    """A share of a moment says nothing."""
    clock = FakeClock()
    governor = Governor(0.02, "governed", now_ns=clock.now_ns)
    for _ in range(9):
        lived(governor, clock, REVIEW_EVERY_NS / 1e10, 0.0)
    assert governor.stride == LONGEST_STRIDE
    lived(governor, clock, 0.05, 0.0)
    assert governor.stride == LONGEST_STRIDE // 2


@pytest.mark.parametrize("budget", [0.0, 0.02, 1.0])
def test_the_first_step_is_always_wanted(budget: float) -> None:
    """One step of each participation, whatever it costs."""
    governor = Governor(budget, "governed")
    assert governor.wants(0)
    assert governor.plan(1000)[0] == 0
    assert not governor.wants(1)


@pytest.mark.parametrize(
    ("mode", "wanted", "whole"),
    [("off", [], False), ("every", [0, 1, 2, 3], False), ("full", [0, 1, 2, 3], True), ("governed", [0], False)],
)
def test_the_setting_decides_which_steps_are_looked_at(mode: str, wanted: list[int], whole: bool) -> None:
    """None, all, all with whole statistics, or what the budget allows."""
    governor = Governor(0.02, mode)
    assert [step for step in range(4) if governor.wants(step)] == wanted
    assert governor.plan(4) == tuple(wanted)
    assert governor.whole_statistics == whole
    assert governor.plan(0) == ()


def test_a_fixed_mode_is_never_reviewed() -> None:
    """`every` means every."""
    clock = FakeClock()
    governor = Governor(0.0, "every", now_ns=clock.now_ns)
    lived(governor, clock, 10.0, 9.0)
    assert governor.stride == 1
