"""A client that fails: kept with stage, shapes and traceback, and raised again as it was."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import torch
from watching import breaks, by_client, only, read, round_of, small_model, spans_of, started

from fedvitals.vocabulary import Failure, Outcome


def failure() -> Failure:
    with read() as reader:
        (one,) = reader.failures()
        return one


def broken_loader() -> Iterator[int]:
    yield 1
    raise OSError("the disk is gone")


def test_a_failure_is_kept_and_raised_again_unchanged() -> None:
    """The same exception object; who, where, when and with which shapes."""
    mine = RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    with breaks(RuntimeError) as broken, round_of(number=4) as rnd, rnd.client(7) as c:
        for _ in c.batches([{"x": torch.zeros(2, 3), "y": torch.zeros(2, dtype=torch.int64)}]):
            raise mine
    assert broken.caught is mine
    assert mine.__context__ is None
    found = failure()
    assert (found.stage, found.kind, found.message) == ("train", "RuntimeError", str(mine))
    assert (found.round, found.client, found.attempt) == (4, "7", 0)
    assert "raise mine" in (found.traceback or "")
    assert json.loads(found.shapes or "") == {"batch.x": "(2, 3) float32", "batch.y": "(2,) int64"}
    one = only()
    assert (one.outcome, one.applied_version, one.staleness) == ("failed", None, None)
    with read() as reader:
        (rnd_record,) = reader.rounds()
    assert (rnd_record.selected, rnd_record.used, rnd_record.failed) == (1, 0, 1)
    assert rnd_record.error == f"RuntimeError: {mine}"


@pytest.mark.parametrize("stage", ["download", "decode", "my own", "load", "client"])
def test_the_stage_is_where_it_happened(stage: str) -> None:
    """The innermost phase, the loader, or the client outside of any."""
    with breaks(OSError), round_of() as rnd, rnd.client(1) as c:
        if stage == "load":
            list(c.batches(broken_loader()))
        with c.phase("wait"):
            pass
        if stage != "client":
            with c.phase("other"), c.phase(stage):
                raise OSError
        raise OSError
    assert failure().stage == stage


def test_a_failure_that_was_overcome_does_not_name_the_next_ones_stage() -> None:
    """A download that was tried again, a loader that was replaced: what fails later failed later."""
    with breaks(KeyError), round_of() as rnd, rnd.client(1) as c:
        for _ in range(2):
            try:
                with c.phase("download"):
                    raise OSError("try again")
            except OSError:
                pass
        with breaks(OSError):
            list(c.batches(broken_loader()))
        raise KeyError("later")
    assert (failure().stage, failure().kind) == ("client", "KeyError")


def test_the_same_exception_raised_again_elsewhere_happened_elsewhere() -> None:
    """What was overcome in one phase may come back, as the very same object from the very same line, in another."""
    same = OSError("again and again")

    def try_it() -> None:
        raise same

    with breaks(OSError), round_of() as rnd, rnd.client(1) as c:
        with breaks(OSError), c.phase("download"):
            try_it()
        with c.phase("upload"):
            try_it()
    assert failure().stage == "upload"


def test_the_phase_around_comes_back_when_an_inner_one_ends() -> None:
    """A failure after a nested phase belongs to the outer one, in a loop to `train`."""
    with started() as run, run.round(0) as rnd:
        with breaks(KeyError), rnd.client("phase") as c, c.phase("decode"):
            with c.phase("load"):
                pass
            raise KeyError
        with breaks(KeyError), rnd.client("loop") as c:
            for _ in c.batches([1]):
                with c.phase("evaluate"):
                    pass
                raise KeyError
    with read() as reader:
        assert {one.client: one.stage for one in reader.failures()} == {"phase": "decode", "loop": "train"}


def test_a_client_that_fails_after_it_submitted_has_failed() -> None:
    """Its statistics are kept: they are what was wrong with it, perhaps."""
    model = small_model()
    with started() as run, run.round(0, model=model) as rnd:
        with breaks(ValueError), rnd.client(1) as c:
            c.submit(small_model(1))
            raise ValueError("late")
        with rnd.client(2) as c:
            c.submit(small_model(2))
    found = by_client()
    assert (found["1"].outcome, found["2"].outcome) == ("failed", "used")
    assert (found["1"].update_norm or 0) > 0
    assert found["1"].applied_version is None


@pytest.mark.parametrize("level", ["open", "sealed"])
def test_a_failure_after_the_update_was_summarised_is_written_too(level: str) -> None:
    """However early the update's statistics were taken."""
    with round_of(small_model(), level=level) as rnd, breaks(ValueError), rnd.client(1) as c:
        c.submit(small_model(1))
        rnd.recorder.flush()
        raise ValueError("late")
    one = only()
    assert one.outcome == "failed"
    assert one.peak_memory_bytes


def test_an_error_of_the_round_is_kept_once() -> None:
    """What happens outside of clients is a failure of the round; a client's is not kept again."""
    with breaks(ZeroDivisionError), started() as run:
        with run.round(0) as rnd, rnd.client(1):
            pass
        with breaks(KeyError), run.round(1) as rnd, rnd.client(1):
            raise KeyError("of the client")
        with run.round(2) as rnd, rnd.phase("aggregate"):
            raise ZeroDivisionError("of the server")
    with read() as reader:
        found = [(one.stage, one.kind, one.round, one.client) for one in reader.failures()]
        errors = [one.error for one in reader.rounds()]
        spans = [(one.name, one.error) for one in spans_of(reader)]
        trace = reader.failures()[-1].traceback or ""
    assert found == [("client", "KeyError", 1, "1"), ("round", "ZeroDivisionError", 2, None)]
    assert errors == [None, "KeyError: 'of the client'", "ZeroDivisionError: of the server"]
    assert spans == [("aggregate", "ZeroDivisionError: of the server")]
    assert "of the server" in trace


def test_attempts_count_a_clients_participations() -> None:
    """Over rounds, retries and failures reported from elsewhere; ids are text."""
    with started() as run:
        for number in range(2):
            with run.round(number) as rnd:
                with rnd.client(3):
                    pass
                rnd.failed(3, stage="wait", kind="timeout", message="no answer in 60 s", outcome=Outcome.DROPPED)
                with rnd.client("3"):
                    pass
    with read() as reader:
        found = [(one.round, one.attempt, one.outcome) for one in reader.participations(client="3")]
        rounds = [(one.selected, one.used, one.failed) for one in reader.rounds()]
        failures = [(one.attempt, one.stage, one.kind) for one in reader.failures()]
    assert found == [(n // 3, n, "dropped" if n % 3 == 1 else "used") for n in range(6)]
    assert rounds == [(1, 2, 1)] * 2
    assert failures == [(1, "wait", "timeout"), (4, "wait", "timeout")]


def test_who_was_asked_and_never_came_is_not_used() -> None:
    """`selected` counts who was asked; a ticket without an answer is neither used nor failed."""
    with round_of(small_model()) as rnd:
        rnd.selected(5)
        with rnd.client(1):
            pass
        assert rnd.ticket(2)
    with read() as reader:
        (one,) = reader.rounds()
    assert (one.selected, one.used, one.failed) == (5, 1, 0)


def test_a_batch_is_not_kept_alive_by_the_session_that_saw_it() -> None:
    """After the session nothing of ours holds the last batch or the submitted state."""
    import gc
    import weakref

    with round_of(small_model()) as rnd:
        with rnd.client(1) as c:
            batch = torch.zeros(3)
            for _ in c.batches([batch]):
                pass
            state = small_model(1)
            c.submit(state)
        seen, kept = weakref.ref(batch), weakref.ref(state)
        del batch, state, _
        gc.collect()
        assert c is not None
        assert seen() is None
        assert kept() is None
