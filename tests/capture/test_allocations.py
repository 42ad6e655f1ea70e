"""Which operations allocate memory: a short table, on request, by torch's own profiler."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from watching import breaks, read, started

import fedvitals
from fedvitals.capture.allocations import MOST_OPERATIONS, table


def tables() -> list[tuple[int | None, str | None, dict[str, Any]]]:
    with read() as reader:
        spans = [one for one in reader.spans() if one.name == "fl.allocations"]
    return [(one.round, one.client, json.loads(one.attributes or "{}")) for one in spans]


def profiling() -> bool:
    return torch._C._autograd._profiler_enabled()


def test_the_operations_that_allocate_are_named() -> None:
    """With calls and bytes, of the run, of a round and of a client."""
    with started() as run:
        with run.allocations("warm"):
            pass
        with run.round(2) as rnd:
            with rnd.allocations("server") as a:
                kept = [torch.zeros(1000, 1000) for _ in range(3)]
                a.note(kept=len(kept))
            with rnd.client("7") as c, c.allocations():
                _ = torch.ones(512, 512) @ torch.ones(512, 512)
    (_, _, warm), server, client = tables()
    assert warm["operations"] == []
    assert server[:2] == (2, None)
    assert client[:2] == (2, "7")
    told = server[2]
    assert (told["name"], told["kept"]) == ("server", 3)
    name, calls, cpu_bytes, device_bytes = told["operations"][0]
    assert name == "aten::empty"
    assert calls >= 3
    assert cpu_bytes == pytest.approx(3 * 4_000_000, rel=0.01)
    assert device_bytes == 0
    assert {row[0] for row in client[2]["operations"]} & {"aten::mm", "aten::empty"}


def test_the_profilers_own_time_is_owned_up_to() -> None:
    """From where it is asked for until the lines begin, and from their end until its table is made."""
    with started() as run, run.allocations():
        assert torch.zeros(1000).numel() == 1000
    with read() as reader:
        spans = reader.spans()
    (lines,) = [one for one in spans if one.name == "fl.allocations"]
    recording = [one for one in spans if one.name == "fl.recording"]
    before = [one for one in recording if one.start_ns < (one.end_ns or 0) <= lines.start_ns]
    after = [one for one in recording if one.start_ns == lines.end_ns]
    assert before
    assert len(after) == 1
    assert (after[0].end_ns or 0) > after[0].start_ns


def test_an_exception_goes_on_and_the_table_is_kept() -> None:
    """The next profile can begin: nothing of the last one is left running."""
    with breaks(ZeroDivisionError), started() as run, run.allocations():
        kept = torch.zeros(1000, 1000)
        _ = kept.numel() / 0
    ((_, _, told),) = tables()
    assert told["operations"][0][0] == "aten::empty"
    assert not profiling()


def test_where_another_profiler_runs_there_is_no_table(caplog: pytest.LogCaptureFixture) -> None:
    """It is said in the span and once in the log; the other one goes on."""
    with started() as run, profile(activities=[ProfilerActivity.CPU]) as other, run.allocations():
        _ = torch.zeros(10)
    ((_, _, told),) = tables()
    assert "another profiler" in told["not_profiled"]
    assert "operations" not in told
    assert any(one.key == "aten::zeros" for one in other.key_averages())
    assert len(caplog.records) == 1


def test_the_table_is_bounded() -> None:
    """By the most that moved; the rest is counted, and it fits into a span whatever the names are."""

    class Average:
        def __init__(self, number: int) -> None:
            self.key, self.count, self.self_cpu_memory_usage = "operation " * 20 + str(number), 2**30, 2**40 + number

    found = table([Average(number) for number in range(100)], MOST_OPERATIONS)
    assert len(found["operations"]) == MOST_OPERATIONS
    assert found["operations_left_out"] == 100 - MOST_OPERATIONS
    assert found["operations"][0][2] == 2**40 + 99
    with started() as run, run.allocations() as a:
        a.note(**found)
    assert len(tables()[0][2]["operations"]) == MOST_OPERATIONS


def test_a_decorated_function_is_profiled_once() -> None:
    """Each call is made, the first is looked at."""
    with started() as run:

        @run.allocations("made")
        def made(size: int) -> torch.Tensor:
            return torch.zeros(size)

        assert [len(made(size)) for size in (10, 20)] == [10, 20]
    assert [told["name"] for _, _, told in tables()] == ["made"]


def test_a_run_that_is_not_recorded_profiles_nothing() -> None:
    """The same calls."""
    with fedvitals.start("off", mode="off") as run, run.round(0) as rnd, rnd.client("a") as c:
        for each in (run, rnd, c):
            with each.allocations():
                assert not profiling()
