"""Runs as they also come: every rule about the system answers or says that it cannot see, and none breaks."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from charted import SYSTEM, Clock, diagnosed, looped, model, trained

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.heterogeneity.client_drift import _ratio
from fedvitals.run import Run
from fedvitals.vocabulary import Status


def nothing(run: Run, clock: Clock) -> None:
    """A run that ends before it begins."""


def empty_rounds(run: Run, clock: Clock) -> None:
    for number in range(12):
        with run.round(number):
            clock.go_on(1.0)


def one_client_once(run: Run, clock: Clock) -> None:
    with run.round(0, model=model()) as rnd, rnd.client("a") as c:
        c.submit(model().state_dict(), loss=math.nan)


def no_time_passes(run: Run, clock: Clock) -> None:
    for number in range(12):
        with run.round(number, model=model()) as rnd:
            for client in range(4):
                with rnd.client(client) as c:
                    c.submit(model().state_dict(), loss=math.inf)


def names_change(run: Run, clock: Clock) -> None:
    for number in range(12):
        with run.round(3 * number, model=model(number)) as rnd:
            for client in range(4):
                with suppress(ValueError), rnd.client(f"{number}/{client}", samples=client) as c:
                    clock.go_on(1.0)
                    if client == number % 4:
                        raise ValueError("\x1b[31m" + "x" * 5000)
                    c.submit(model().state_dict())


def twice_in_a_round(run: Run, clock: Clock) -> None:
    for number in range(12):
        with run.round(number // 2) as rnd:
            for client in ("a", "a", "b"):
                with rnd.client(client) as c, c.phase("load"):
                    clock.go_on(1.0)


def told_elsewhere(run: Run, clock: Clock) -> None:
    with run.round(0, model=model()) as rnd:
        rnd.failed("a", stage="upload", kind="timeout", message="")
        rnd.failed("b", stage="", kind="", message="", attempt=2**31 - 1)
        rnd.evaluated(loss=math.nan, client="c")


LOOPS = [nothing, empty_rounds, one_client_once, no_time_passes, names_change, twice_in_a_round, told_elsewhere]


@pytest.mark.parametrize("loop", LOOPS)
def test_an_awkward_loop_breaks_no_rule(loop: Callable[[Run, Clock], None], tmp_path: Path) -> None:
    """Not one of them, whichever way it is looked at: ended, going on, or cut off in the middle."""
    chart = looped(tmp_path, loop)
    for status in Status:
        rounds = tuple(one._replace(end_ns=None) for one in chart.rounds) if status is Status.CUT_OFF else chart.rounds
        seen = diagnosed(replace(chart, rounds=rounds, run=replace(chart.run, status=status), _shared={}), *SYSTEM)
        assert len(seen.not_observable) < 25


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Chart:
    return trained(tmp_path_factory.mktemp("runs"))


def test_every_prefix_of_a_run_can_be_judged(chart: Chart) -> None:
    """As it was after each of its rounds."""
    for number in range(0, 20, 3):
        diagnosed(chart.until(number), *SYSTEM)
    assert len(chart.until(3).rounds) == 4


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0, -1.0])
def test_numbers_that_make_no_sense_break_no_rule(chart: Chart, value: float) -> None:
    """Times, bytes, rows and memory of any value, as a remote client may claim them."""
    table = chart.participations
    spoilt = ("samples", "steps", "wire_bytes_up", "peak_memory_bytes", "clock_skew_s", "epochs")
    for name in spoilt:
        column = np.array(getattr(table, name), copy=True)
        column[::3] = value
        diagnosed(replace(chart, participations=replace(table, **{name: column}), _shared={}), *SYSTEM)
    ends = np.where(np.arange(len(table)) % 3, table.end_ns, np.int64(min(max(np.nan_to_num(value), -1), 1) * 2**62))
    diagnosed(replace(chart, participations=replace(table, end_ns=ends), _shared={}), *SYSTEM)
    phases = np.full_like(table.phases_s, value)
    told = diagnosed(replace(chart, participations=replace(table, phases_s=phases), _shared={}), *SYSTEM)
    assert told.run.id == chart.run.id


def test_a_record_of_an_older_recorder_can_be_judged(chart: Chart) -> None:
    """Without settings, memory, cores or health."""
    bare = replace(chart, run=replace(chart.run, environment={}, health={}, config={}), resources=(), _shared={})
    told = diagnosed(bare, *SYSTEM)
    assert {"FL803", "FL901", "FL902", "FL904"} <= set(told.not_observable)


def test_updates_of_nothing_at_all_have_no_length_to_compare_with() -> None:
    """A server that moves on all the same, by momentum, divides by none of them."""
    assert math.isnan(_ratio(1.0, 0.0))
    assert _ratio(1.0, 2.0) == 0.5
