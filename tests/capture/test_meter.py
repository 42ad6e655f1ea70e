"""The meter behind the memory of phases: exact on a pretended mark, with and without a way to set it back."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from watching import read, spans_of, started

from fedvitals.capture import watermark
from fedvitals.capture.governor import Governor
from fedvitals.capture.meter import METER, MOST_OPEN, MemoryMeter, Used
from fedvitals.capture.phase_memory import FIRST_NS, PhaseMemory
from fedvitals.capture.watermark import PlainWatermark, ProcWatermark, Reading, parsed
from fedvitals.testing import FakeClock


class Mark:
    """A pretended process: `use` says how much it uses from now on."""

    def __init__(self, settable: bool = True) -> None:
        self.now = self.peak = 100
        self.settable = settable
        self.reads = 0
        self.looked = threading.Event()

    def use(self, now: int) -> None:
        self.now = now
        self.peak = max(self.peak, now)

    def read(self) -> Reading:
        self.reads += 1
        self.looked.set()
        return Reading(self.now, self.peak)

    def highest(self) -> int:
        return self.peak

    def reset(self) -> bool:
        if self.settable:
            self.peak = self.now
        return self.settable

    def close(self) -> None: ...


@pytest.fixture
def unsettable() -> Iterator[tuple[MemoryMeter, Mark]]:
    mark = Mark(settable=False)
    meter = MemoryMeter(mark, sample_every_s=0.001)
    meter.take(mark)
    yield meter, mark
    meter.give_back(mark)


def test_a_stretch_has_its_own_peak() -> None:
    """Not what was before it, not what comes after."""
    mark = Mark()
    meter = MemoryMeter(mark)
    mark.use(900)
    mark.use(100)
    stretch = meter.begin()
    mark.use(300)
    mark.use(150)
    assert meter.end(stretch) == Used(100, 300, 150)
    mark.use(700)
    assert meter.look() == Reading(700, 900)


@given(st.lists(st.tuples(st.sampled_from(["begin", "end", "use"]), st.integers(1, 1000)), max_size=60))
def test_every_stretch_tells_the_highest_of_what_it_saw(events: list[tuple[str, int]]) -> None:
    """However they are nested, and the process's own peak is the highest of all."""
    mark = Mark()
    meter = MemoryMeter(mark)
    used, open_ = [100], []
    for what, size in events:
        if what == "begin":
            open_.append((meter.begin(), len(used) - 1))
        elif what == "use":
            mark.use(size)
            used.append(size)
        elif open_:
            stretch, since = open_.pop()
            assert meter.end(stretch) == Used(used[since], max(used[since:]), used[-1])
    assert meter.look().peak_bytes == max(used)


def test_tasks_that_take_turns_in_one_thread_are_seen_to_overlap() -> None:
    """What began later and ends later was not inside."""
    meter = MemoryMeter(Mark())
    first, second, third = meter.begin(), meter.begin(), meter.begin()
    assert not meter.end(third).shared
    assert meter.end(first).shared
    assert meter.end(second).shared


def test_without_a_way_to_set_it_back_a_new_height_is_exact(unsettable: tuple[MemoryMeter, Mark]) -> None:
    """The kernel tells it; nothing is sampled of it."""
    meter, mark = unsettable
    stretch = meter.begin()
    mark.use(500)
    mark.use(120)
    assert meter.end(stretch) == Used(100, 500, 120, sampled=False)


def test_without_a_way_to_set_it_back_the_rest_is_sampled(unsettable: tuple[MemoryMeter, Mark]) -> None:
    """By a thread that looks while a stretch is open: below an earlier peak only it can see."""
    meter, mark = unsettable
    mark.use(900)
    mark.use(100)
    stretch = meter.begin()
    mark.use(400)
    mark.looked.clear()
    assert mark.looked.wait(30)
    with meter._lock:  # the look that was waited for is over
        mark.use(110)
    assert meter.end(stretch) == Used(100, 400, 110, sampled=True)


def test_as_many_stretches_as_may_be_open_are_all_watched() -> None:
    """Each sees what comes after the last one began; one more, and the first says that it may have missed something."""
    mark = Mark()
    meter = MemoryMeter(mark)
    some = [meter.begin() for _ in range(MOST_OPEN)]
    mark.use(500)
    assert [meter.end(one) for one in reversed(some[1:])] == [Used(100, 500, 500)] * (MOST_OPEN - 1)
    more = [meter.begin() for _ in range(MOST_OPEN)]
    mark.use(900)
    assert meter.end(some[0]) == Used(100, 500, 900, sampled=True)
    assert [meter.end(one) for one in reversed(more)] == [Used(500, 900, 900)] * MOST_OPEN


def test_stretches_that_nobody_ends_are_forgotten() -> None:
    """The oldest first; ending one of those later does no harm."""
    meter = MemoryMeter(Mark())
    first = meter.begin()
    for _ in range(400):
        meter.begin()
    assert len(meter._open) <= 256
    assert meter.end(first).peak_bytes == 100


def memory(budget: float = 0.02) -> tuple[PhaseMemory, FakeClock]:
    clock = FakeClock()
    governor = Governor(budget, "governed", now_ns=clock.now_ns)
    return PhaseMemory(governor, blame=lambda *_: None, meter=MemoryMeter(Mark()), now_ns=clock.now_ns), clock


def lasting(own: PhaseMemory, clock: FakeClock, name: str, seconds: float, use: tuple[int, ...] = ()) -> str:
    """One phase that lasts so long and uses so much; what is told of it."""
    held = own.begin(name)
    for size in use:
        mark_of(own).use(size)
    clock.advance(seconds)
    return own.end(held)


def mark_of(own: PhaseMemory) -> Mark:
    mark = own.meter._mark
    assert isinstance(mark, Mark)
    return mark


def spend(own: PhaseMemory, ns: int) -> None:
    own._spent_ns += ns


def test_phases_that_last_are_always_measured() -> None:
    """They pay for themselves, also when there is nothing left for short ones."""
    own, clock = memory()
    lasting(own, clock, "train", 0.1)
    lasting(own, clock, "select", 1e-5)
    spend(own, 100 * FIRST_NS)
    assert not own.affords("select", clock.now_ns())
    assert own.affords("train", clock.now_ns())
    assert own.affords("never seen", clock.now_ns())


def test_short_phases_share_what_is_left_and_what_is_skipped_is_counted() -> None:
    """Time that passes gives them room again."""
    own, clock = memory()
    lasting(own, clock, "select", 1e-5)
    spend(own, FIRST_NS + 10_000)
    assert lasting(own, clock, "select", 1e-5) == ""
    spend(own, 100 * FIRST_NS)
    assert lasting(own, clock, "select", 1e-5) == ""
    assert (own.measured, own.skipped) == (1, 2)
    assert own.meter._open == []
    clock.advance(1e4)
    assert lasting(own, clock, "select", 1e-5) == '"rss_bytes": [100, 100, 100]'


@pytest.mark.parametrize(
    ("before", "told"),
    [((), '"rss_bytes": [100, 700, 110]'), ((900, 100), '"rss_bytes": [100, 110, 110], "rss_sampled": true')],
)
def test_a_usually_short_phase_that_lasts_is_told_after_all(before: tuple[int, ...], told: str) -> None:
    """Exactly where the process was never higher since the mark was set back; else by its ends, and marked so."""
    own, clock = memory()
    for _ in range(3):
        lasting(own, clock, "select", 1e-5)
    spend(own, FIRST_NS + 10_000)
    for size in before:
        mark_of(own).use(size)
    assert lasting(own, clock, "select", 0.05, use=(700, 110)) == told


def test_at_the_limit_of_the_whole_budget_less_is_measured() -> None:
    """Only what lasts eight times longer."""
    own, clock = memory()
    lasting(own, clock, "train", 0.05)
    spend(own, FIRST_NS * 2)
    assert own.affords("train", clock.now_ns())
    own._governor.tight = True
    assert not own.affords("train", clock.now_ns())


def test_another_processs_turn_is_not_our_cost() -> None:
    """On a busy machine measuring seems to take long; that must not end it."""
    own, clock = memory()

    class Slow(Mark):
        def read(self) -> Reading:
            clock.advance(1.0)
            return super().read()

    own.meter = MemoryMeter(Slow())
    lasting(own, clock, "train", 0.01)
    assert own._governor.spent_ns <= 200_000


def test_the_peak_alone_survives_that_the_mark_is_set_back() -> None:
    """What a participation is told as its process's peak is never less than it was."""
    mark = Mark()
    meter = MemoryMeter(mark)
    mark.use(500)
    mark.use(200)
    meter.begin()  # looks, then sets the mark back to 200
    assert mark.peak == 200
    assert meter.peak_bytes() == 500
    mark.use(700)
    assert meter.peak_bytes() == 700
    assert mark.reads == 1


def test_a_kernel_that_tells_no_more_costs_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """The phases go on without numbers."""

    class Broken(Mark):
        def read(self) -> Reading:
            raise OSError("proc is gone")

    with caplog.at_level(logging.WARNING), started(memory="exact") as run, run.round(0) as rnd:
        mark, METER._mark = METER._mark, Broken()
        for _ in range(3):
            with rnd.phase("aggregate"):
                pass
        METER._mark = mark
    with read() as reader:
        assert [one.attributes for one in spans_of(reader)] == [None] * 3
    assert len([one for one in caplog.records if "proc is gone" in one.getMessage()]) == 1


def test_what_the_kernel_writes_is_read() -> None:
    """Two lines of many, in kilobytes."""
    text = b"Name:\tpython\nVmPeak:\t  99 kB\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\nRssAnon:\t 1 kB\n"
    assert parsed(text) == Reading(1024 * 1024, 2048 * 1024)
    with pytest.raises(ValueError, match="not found"):
        parsed(b"Name:\tpython\n")


@pytest.mark.skipif(not os.path.exists(watermark.STATUS), reason="this system has no /proc")
def test_a_descriptor_that_somebody_closed_is_opened_again() -> None:
    """A training may close all it finds; what is then opened under our number is never written to."""
    mark = ProcWatermark()
    first = mark.read()
    os.close(mark._file)
    assert mark.read().rss_bytes == pytest.approx(first.rss_bytes, rel=0.2)
    assert mark.read().peak_bytes >= mark.read().rss_bytes * 0.99
    assert mark.highest() == pytest.approx(mark.read().peak_bytes, rel=0.05)
    mark.close()


def test_the_plain_mark_tells_the_same_and_cannot_be_set_back() -> None:
    """For systems without /proc."""
    plain = PlainWatermark()
    found = plain.read()
    assert 10 * 2**20 < found.rss_bytes <= found.peak_bytes
    assert not plain.reset()
    plain.close()


def test_a_machine_without_such_a_file_gets_the_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is assumed of the system."""
    monkeypatch.setattr(watermark, "STATUS", "/nowhere/status")
    assert isinstance(watermark.find_watermark(), PlainWatermark)
    monkeypatch.setattr(watermark, "CLEAR", b"/nowhere/clear_refs")
    assert not ProcWatermark().reset()
