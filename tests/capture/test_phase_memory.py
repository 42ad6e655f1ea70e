"""Memory of phases: each has its own peak, to the kernel's count, whatever is around it."""

from __future__ import annotations

import json
import mmap
import os
import threading
import time
from typing import Any

import pytest
import torch
from apart import session
from watching import breaks, by_client, read, small_model, spans_of
from watching import started as began

from fedvitals.capture.accelerator import DeviceSample
from fedvitals.capture.meter import METER
from fedvitals.capture.resources import peak_rss_bytes, rss_bytes
from fedvitals.capture.watermark import find_watermark
from fedvitals.run import Run
from fedvitals.testing import FakeAccelerator

MB = 2**20
exact = pytest.mark.skipif(not find_watermark().reset(), reason="this system does not let the peak be set back")


def started(**values: Any) -> Run:
    """A run as it is by default: other tests leave memory out."""
    return began(**{"memory": "exact"} | values)


def touched(size_mb: int) -> torch.Tensor:
    """So much memory, all of it resident and new: the heap of a process that has done much may have it already."""
    return torch.frombuffer(mmap.mmap(-1, size_mb * MB), dtype=torch.float32).fill_(1.0)


def phases(name: str = "last") -> dict[tuple[str | None, str], dict[str, Any]]:
    """What is kept of each phase, by client and name."""
    with read(name) as reader:
        spans = spans_of(reader)
    found = {(one.client, one.name): json.loads(one.attributes or "{}") for one in spans}
    return {(client, told.get("name", phase)): told for (client, phase), told in found.items()}


def rise(told: dict[str, Any]) -> float:
    start, peak, _ = told["rss_bytes"]
    return float(peak - start)


@exact
def test_200_mb_in_one_phase_of_one_client_are_that_phases_peak() -> None:
    """Held for 50 ms, within 5%, in that phase and that client alone; and nothing of it stays."""
    with started() as run, run.round(0) as rnd:
        for client in ("a", "b", "c"):
            with rnd.client(client) as c:
                with c.phase("download"):
                    pass
                with c.phase("train"):
                    if client == "b":
                        del_me = touched(200)
                        time.sleep(0.05)  # what is watched is memory that is held, not how fast it comes and goes
                        assert del_me.numel() > 0
                        del del_me
                with c.phase("encode"):
                    pass
        with rnd.phase("aggregate"):
            pass
    found = phases()
    assert rise(found["b", "train"]) == pytest.approx(200 * MB, rel=0.05)
    start, _, end = found["b", "train"]["rss_bytes"]
    assert abs(end - start) < 10 * MB
    others = [rise(told) for key, told in found.items() if key != ("b", "train") and "rss_bytes" in told]
    assert len(others) >= 9
    assert max(others) < 10 * MB
    assert not any("rss_sampled" in told or "rss_shared" in told for told in found.values())
    sessions = {client: json.loads(one.metrics or "{}") for client, one in by_client().items()}
    assert rise(sessions["b"]) == pytest.approx(200 * MB, rel=0.05)
    assert max(rise(sessions["a"]), rise(sessions["c"])) < 10 * MB


@exact
def test_the_processs_own_peak_is_not_lost_when_the_mark_is_set_back() -> None:
    """Later clients and samples tell of it still, as the kernel itself no longer does."""
    with started(resources_every_s=3600.0) as run, run.round(0) as rnd:
        before = rss_bytes()
        with rnd.client("first") as c, c.phase("train"):
            assert touched(100).numel() > 0
        with rnd.client("second") as c, c.phase("train"):
            pass
    assert peak_rss_bytes() >= before + 95 * MB
    assert all((one.peak_memory_bytes or 0) >= before + 95 * MB for one in by_client().values())
    with read() as reader:
        assert reader.resources()[-1].peak_rss_bytes >= before + 95 * MB


@exact
def test_a_phase_inside_another_takes_nothing_from_it() -> None:
    """The outer keeps the peak it had before the inner began, and takes over the inner's."""
    with started() as run, run.round(0) as rnd:
        with rnd.phase("first outer"):
            assert touched(80).numel() > 0
            with rnd.phase("small inner"):
                pass
        with rnd.phase("second outer"), rnd.phase("large inner"):
            assert touched(80).numel() > 0
    with read() as reader:
        told = [json.loads(one.attributes or "{}") for one in spans_of(reader)]
    found = {one["name"]: rise(one) for one in told}
    for name in ("first outer", "second outer", "large inner"):
        assert found[name] == pytest.approx(80 * MB, rel=0.05)
    assert found["small inner"] < 8 * MB


def test_phases_of_threads_that_overlap_say_so() -> None:
    """One process has one memory: which of the two took it, nobody knows."""
    both = threading.Barrier(2, timeout=30)

    def client(rnd: Any, name: str) -> None:
        with rnd.client(name) as c, c.phase("train"):
            both.wait()

    with started() as run, run.round(0) as rnd:
        threads = [threading.Thread(target=client, args=(rnd, name)) for name in "xy"]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        with rnd.client("alone") as c, c.phase("train"):
            pass
    found = phases()
    assert found["x", "train"]["rss_shared"] is True
    assert found["y", "train"]["rss_shared"] is True
    assert "rss_shared" not in found["alone", "train"]


def test_a_phase_that_fails_is_measured_and_nothing_stays_open() -> None:
    """The exception goes on unchanged."""
    with breaks(ZeroDivisionError), started() as run, run.round(0) as rnd, rnd.client("a") as c, c.phase("train"):
        _ = 1 / 0
    assert len(phases()["a", "train"]["rss_bytes"]) == 3
    assert METER._open == []


def test_off_measures_nothing() -> None:
    """No attribute, no metric; the peak of the process is known all the same."""
    with started(memory="off") as run, run.round(0) as rnd, rnd.client("a") as c, c.phase("train"):
        pass
    assert phases() == {("a", "train"): {}}
    assert by_client()["a"].metrics is None
    assert (by_client()["a"].peak_memory_bytes or 0) > 10 * MB


def test_sampled_leaves_the_mark_alone_and_says_so() -> None:
    """Whoever reads the kernel's peak sees it unchanged; the thread that looks is gone with its run."""
    held = touched(64)
    before = find_watermark().read().peak_bytes
    del held
    with started(memory="sampled") as run, run.round(0) as rnd, rnd.phase("aggregate"):
        assert "fedvitals-memory" in {one.name for one in threading.enumerate()}
    assert find_watermark().read().peak_bytes >= before - MB  # the kernel's own count is this exact
    assert phases()[None, "aggregate"]["rss_sampled"] is True
    assert "fedvitals-memory" not in {one.name for one in threading.enumerate()}


def test_the_runs_health_tells_how_and_how_much() -> None:
    """Measured and skipped phases, and the way it was done."""
    with started() as run, run.round(0) as rnd, rnd.client("a") as c, c.phase("train"):
        pass
    with read() as reader:
        health = reader.run().health["memory"]
    assert health == {"how": "exact", "measured": 2, "skipped": 0}


def test_devices_have_their_own_numbers() -> None:
    """Start, highest and end of each, from a pretended accelerator: torch's peak where it rose."""
    readings = [
        [DeviceSample("cuda:0", 10, 50, 100, None)],  # a phase begins
        [DeviceSample("cuda:0", 20, 90, 100, None), DeviceSample("cuda:1", 5, 7, 100, None)],  # and ends
        [DeviceSample("cuda:0", 20, 90, 100, None)],  # another
        [DeviceSample("cuda:0", 30, 90, 100, None)],
    ]
    with started(accelerator=FakeAccelerator(*readings)) as run, run.round(0) as rnd:
        with rnd.phase("aggregate"):
            pass
        with rnd.phase("evaluate"):
            pass
    found = phases()
    assert found[None, "aggregate"]["device_bytes"] == {"cuda:0": [10, 90, 20], "cuda:1": [0, 7, 5]}
    assert found[None, "evaluate"]["device_bytes"] == {"cuda:0": [20, 30, 30]}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_counts_its_own_memory() -> None:
    """Neither the parent's open phases nor its peak are the child's, and the parent's mark stays where it is."""
    with started() as run, run.round(0) as rnd, rnd.phase("aggregate"):
        held = touched(60)
        del held
        child = os.fork()
        if child == 0:
            ok = METER._open == [] and peak_rss_bytes() < run.recorder.memory.meter.look().rss_bytes + 30 * MB
            with rnd.phase("evaluate"):
                pass
            os._exit(0 if ok else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    found = phases()
    assert set(found) == {(None, "aggregate")}
    if "rss_sampled" not in found[None, "aggregate"]:
        assert rise(found[None, "aggregate"]) == pytest.approx(60 * MB, rel=0.05)


def test_a_rounds_end_leaves_a_sample() -> None:
    """So that what stays from round to round can be seen; none where none are wanted."""
    with started(resources_every_s=3600.0) as run:
        for number in range(3):
            run.recorder._sampled_s = 0.0  # long ago
            with run.round(number, model=small_model()):
                pass
    with read() as reader:
        rounds, samples = reader.rounds(), reader.resources()
    for one in rounds:
        assert any(one.start_ns <= sample.at_ns for sample in samples)
    assert len(samples) >= 3


def test_a_client_that_is_apart_tells_of_its_own_memory() -> None:
    """In its message, for each phase and for the whole."""
    with started() as run, run.round(0, model=small_model()) as rnd:
        with session(rnd.ticket("far"), small_model()) as c, c.phase("train"):
            pass
        rnd.merge(c.to_bytes(), client="far")
    assert len(phases()["far", "train"]["rss_bytes"]) == 3
    assert len(json.loads(by_client()["far"].metrics or "{}")["rss_bytes"]) == 3
