"""The watcher never harms the watched: the same weights, the same randomness, no exception, no hanging."""

from __future__ import annotations

import copy
import logging
import random
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from watching import batches, breaks, by_client, flat, read, round_of, small_model, started

import fedvitals
from fedvitals.run import Run
from fedvitals.vocabulary import Record


class OwnError(Exception):
    """Raised by the training itself."""


def federated(run: Any, rounds: int = 2) -> Tensor:
    """A loop that uses all there is, draws random numbers, and fails now and then; gives the final weights."""
    torch.manual_seed(1)
    np.random.seed(1)
    random.seed(1)
    model = nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.3), nn.BatchNorm1d(5), nn.Linear(5, 3))
    with run:
        for number in range(rounds):
            with run.round(number, model=model) as rnd, run.span("round", number=number):
                states = [trained(rnd, model, client) for client in range(3)]
                with breaks(OwnError), rnd.client("broken") as c:
                    c.watch(model)
                    with c.phase("load"):
                        raise OwnError
                rnd.failed("silent", stage="wait", kind="timeout", message="")
                stacked = {name: torch.stack([state[name] for state in states]) for name in states[0]}
                cohort = rnd.cohort(["a", "b", "c"])
                cohort.step(stacked, torch.ones(3))
                cohort.submit(stacked, torch.ones(3))
                with rnd.phase("aggregate"):
                    model.load_state_dict({name: values.float().mean(0) for name, values in stacked.items()})
                rnd.evaluated(loss=torch.tensor(0.5), accuracy=0.5)
        version = run.version(model)
        with run.client("late", base=version) as c:
            c.submit(model)
    return flat(model.state_dict())


def trained(rnd: Any, model: nn.Module, client: int) -> dict[str, Tensor]:
    local = copy.deepcopy(model)
    optimizer = torch.optim.Adam(local.parameters(), lr=0.01 * (1 + random.random() + np.random.rand()))
    with rnd.client(client, samples=18) as c:
        c.watch(local)
        with c.epoch():
            for x, y in c.batches(batches(3, seed=client)):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(local(x + torch.randn_like(x)), y)
                loss.backward()  # type: ignore[no-untyped-call]  # torch says no type for it
                optimizer.step()
                c.step(loss)
        c.submit(local.state_dict(), loss=loss, accuracy=0.5, f1=0.1)
    return dict(local.state_dict())


def generators() -> tuple[Any, ...]:
    """The states of all global generators."""
    state: Any = np.random.get_state(legacy=True)
    return torch.get_rng_state().tolist(), state[1].tolist(), state[2], random.getstate()


@pytest.mark.parametrize("values", [{"steps": "full", "keep_updates": True}, {"level": "sealed"}, {"steps": "off"}])
def test_a_training_is_the_same_watched_and_unwatched(values: dict[str, Any]) -> None:
    """To the last bit of the weights, and of torch's, numpy's and Python's own generators."""
    unwatched = federated(fedvitals.start("t", mode="off"))
    after = generators()
    watched = federated(started(**values))
    assert torch.equal(unwatched, watched)
    assert generators() == after
    with read() as reader:
        assert len(reader.rounds()) == 2


INSIDES = [
    "fedvitals.capture.pending.summarise",
    "fedvitals.capture.models.summarise",
    "fedvitals.capture.models.Flattener",
    "fedvitals.capture.models.Snapshot",
    "fedvitals.capture.tensors.layout.Flattener.row",
    "fedvitals.capture.tensors.layout.Flattener.fits",
    "fedvitals.capture.tensors.layout.Flattener.fingerprint",
    "fedvitals.capture.tensors.layout.Flattener.stacked",
    "fedvitals.capture.buffer.CohortBuffer.add_state",
    "fedvitals.capture.buffer.CohortBuffer.amend",
    "fedvitals.capture.buffer.CohortBuffer.finish",
    "fedvitals.capture.buffer.kept_losses",
    "fedvitals.capture.probe.norms_of",
    "fedvitals.capture.probe.GradientProbe.__enter__",
    "fedvitals.capture.probe.GradientProbe.results",
    "fedvitals.capture.governor.Governor.review",
    "fedvitals.capture.draft.Draft.record",
    "fedvitals.capture.clients.peak_rss_bytes",
    "fedvitals.capture.clients.shapes_of",
    "fedvitals.capture.clients.ClientPhase",
    "fedvitals.capture.spans.SpanSession._record",
    "fedvitals.capture.spans.as_json",
    "fedvitals.capture.cohorts.CohortBatch",
    "fedvitals.capture.recorder.Recorder.health",
    "fedvitals.capture.recorder.Recorder.next_attempt",
    "fedvitals.store.writer.BackgroundWriter.put",
    "fedvitals.store.writer.BackgroundWriter.put_blob",
    "fedvitals.store.writer.BackgroundWriter.nudge",
]


@pytest.mark.parametrize("inside", INSIDES)
def test_whatever_breaks_inside_the_training_goes_on(
    inside: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The same weights, no exception, and each place says once what is wrong."""
    unwatched = federated(fedvitals.start("t", mode="off"))

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("broken inside")

    run = started(steps="every", keep_updates=True)
    with monkeypatch.context() as patched:
        patched.setattr(inside, broken)
        watched = federated(run)
    assert torch.equal(unwatched, watched)
    warnings = [record.getMessage() for record in caplog.records if record.name == "fedvitals"]
    assert any("broken inside" in warning for warning in warnings), warnings
    assert len(set(warnings)) == len(warnings), warnings


def test_what_cannot_be_summarised_is_written_without_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    """The participations are not lost with their statistics."""

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("broken inside")

    with round_of(small_model()) as rnd:
        monkeypatch.setattr("fedvitals.capture.pending.summarise", broken)
        for client in range(3):
            with rnd.client(client) as c:
                c.submit(small_model(client), loss=client)
    assert {name: (one.loss, one.update_norm) for name, one in by_client().items()} == {
        "0": (0.0, None),
        "1": (1.0, None),
        "2": (2.0, None),
    }


def test_a_user_whose_log_handler_raises_is_not_harmed(caplog: pytest.LogCaptureFixture) -> None:
    """Our one warning may not become their exception."""

    class Touchy(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise OSError("no more logs")

    logger, touchy = logging.getLogger("fedvitals"), Touchy()
    logger.addFilter(touchy)
    try:
        with round_of(small_model()) as rnd, rnd.client(1) as c:
            c.submit("no model")
    finally:
        logger.removeFilter(touchy)
    assert by_client()["1"].outcome == "used"


class StuckJournal:
    """A disk that hangs until told to go on."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def append(self, records: Sequence[Record]) -> None:
        self.go_on.wait(60)

    def put_blob(self, data: bytes) -> str:
        self.go_on.wait(60)
        return "0" * 64

    def size_bytes(self) -> int:
        return 0

    def close(self) -> None: ...


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[StuckJournal]:
    journal = StuckJournal()
    monkeypatch.setattr("fedvitals.run._create", lambda settings, record: journal)
    yield journal
    journal.go_on.set()
    for thread in threading.enumerate():
        if thread.name.startswith("fedvitals"):
            thread.join(30)


def test_a_disk_that_hangs_stops_neither_the_training_nor_its_end(
    stuck: StuckJournal, caplog: pytest.LogCaptureFixture
) -> None:
    """The close waits no longer than it is allowed to, and says that the end may be missing."""
    unwatched = federated(fedvitals.start("t", mode="off"))
    assert torch.equal(unwatched, federated(started(close_timeout_s=0.1)))
    assert not stuck.go_on.is_set()
    warnings = [record.getMessage() for record in caplog.records if record.name == "fedvitals"]
    assert len(warnings) == 1
    assert "gave up waiting for the disk" in warnings[0]


def test_a_queue_that_is_full_drops_and_counts(stuck: StuckJournal) -> None:
    """While the disk hangs, memory stays bounded."""
    run = started(close_timeout_s=0.0, queue_mb=1)
    with run:
        for _ in range(3000):
            with run.span("s"):
                pass
    assert run.recorder.run.health["dropped"]["Span"] > 500


def test_anything_may_be_called_a_round_a_client_or_a_count(caplog: pytest.LogCaptureFixture) -> None:
    """After `start` nothing of ours raises, whatever it is given."""

    class Nameless:
        def __str__(self) -> str:
            raise ValueError("no name")

    with started() as run:
        odd: Any = Nameless()
        with run.round(odd) as rnd, rnd.client(odd) as c:
            c.submit(odd)
        with run.client(odd, base=odd) as c:
            c.step(odd)
        with run.round(np.int64(3)) as rnd:  # type: ignore[arg-type]  # people do
            with rnd.client(odd) as c, c.phase(odd, bytes=odd):
                c.epoch()
            with rnd.client(1, samples=odd) as c, c.phase("x", bytes=odd, what=odd) as phase:
                phase.note(odd=odd)
                c.submit(odd, loss=odd, accuracy=odd, wire_bytes=odd, other=odd)
            rnd.evaluated(loss=odd, client=odd, samples=odd)
            rnd.failed(odd, stage=odd, kind=odd, message=odd)
            rnd.selected(odd)
            assert rnd.ticket(odd) == b""
            rnd.merge(odd, client=odd)
            rnd.cohort(odd).submit(odd)
        assert run.version(odd) is None
        assert isinstance(run, Run)
    with read() as reader:
        assert [one.number for one in reader.rounds()] == [3]
        assert [one.client for one in reader.participations()] == ["1"]
    assert len(caplog.records) == len({record.getMessage() for record in caplog.records})
