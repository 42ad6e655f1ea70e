"""A forked child that goes on calling the recorder: it writes nothing, waits for nothing, disturbs nobody."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import pytest
import torch
from watching import batches, by_client, read, small_model, spans_of, started, train

from fedvitals.capture.rounds import RoundSession

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def everything(run: Any, rnd: Any, c: Any) -> None:
    """All that a child may call on what it inherited, and on what it makes from it."""
    for x, y in c.batches(batches(1)):
        assert x.shape[0] == y.shape[0]
    c.step(torch.tensor(1.0))
    c.submit(small_model(2))
    c.__exit__(None, None, None)
    with rnd.client("child") as own:
        own.watch(small_model())
        own.submit(small_model(3))
    rnd.evaluated(loss=1.0)
    rnd.failed("child", stage="s", kind="k", message="m")
    rnd.cohort(["child"]).submit({})
    rnd.merge(b"x", client="child")
    assert rnd.ticket("child") == b""
    rnd.__exit__(None, None, None)
    with run.round(9, model=small_model()) as other, run.span("child"), other.phase("aggregate"):
        train(small_model(), batches(1))
    run.version(small_model())
    run.close()


def in_child(*arguments: Any) -> int:
    """Fork, call everything, and give the child's exit code; a child that hangs is killed."""
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        try:
            everything(*arguments)
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def test_a_forked_child_writes_nothing_and_the_parent_goes_on() -> None:
    """Even when it was forked while every lock of ours was held."""
    with started() as run, run.round(0, model=small_model()) as rnd:
        with rnd.client("parent") as c:
            c.watch(small_model())
            recorder = run.recorder
            assert isinstance(rnd, RoundSession)
            assert rnd.buffer is not None
            locks = (recorder._lock, recorder.pending._lock, recorder.pending._flushing, rnd.buffer._lock)
            models = (recorder.models._lock, recorder.models._naming)
            for lock in (*locks, *models):
                lock.acquire()
            code = in_child(run, rnd, c)
            for lock in (*locks, *models):
                lock.release()
            assert code == 0
            c.submit(small_model(1))
        with rnd.client("after") as c:
            c.submit(small_model(2))
    found = by_client()
    assert set(found) == {"parent", "after"}
    assert all((one.update_norm or 0) > 0 for one in found.values())
    with read() as reader:
        assert reader.run().status == "finished"
        assert [one.number for one in reader.rounds()] == [0]
        assert spans_of(reader) == []
        assert reader.failures() == []


def test_a_child_may_start_a_run_of_its_own() -> None:
    """Only what it inherited is the parent's."""
    with started("parent") as run, run.round(0):
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            try:
                with started("child") as own, own.round(7):
                    pass
                os._exit(0)
            except BaseException:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with read("child") as reader:
        assert [one.number for one in reader.rounds()] == [7]
        assert reader.run().status == "finished"
    with read("parent") as reader:
        assert [one.number for one in reader.rounds()] == [0]
