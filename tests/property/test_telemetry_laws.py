"""Laws of what comes from afar: whatever the bytes, a failure and one warning, never an exception or much memory."""

from __future__ import annotations

import json
import logging
import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import fedvitals
from fedvitals.capture.inspection import read_telemetry
from fedvitals.capture.memory import MemorySink
from fedvitals.capture.merging import merge
from fedvitals.capture.nothing import NoClient
from fedvitals.capture.recorder import Recorder
from fedvitals.capture.remote import RemoteClient
from fedvitals.capture.rounds import RoundSession
from fedvitals.capture.wire import MAGIC, MOST_BYTES, MOST_HEADER, pack, unpack
from fedvitals.errors import TelemetryError
from fedvitals.settings import Settings
from fedvitals.store import SQLiteStore
from fedvitals.vocabulary import Failure, LogEntry, Participation, Record, Run, Status

torch.set_num_threads(1)
MODEL = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
QUICK = settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])


class Kept(MemorySink):
    """All records, in order, and in a real store: what was let in must be possible to keep."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.records: list[Record] = []
        self.journal = SQLiteStore(folder).create(RUN)

    def put(self, records: Any, size_bytes: int) -> bool:
        self.records += records
        self.journal.append(records)
        return True


RUN = Run("r", "r", Status.RUNNING, 0)


@contextmanager
def server(folder: Path) -> Iterator[tuple[RoundSession, Kept, bytes]]:
    """A round that waits for client "a", and the honest telemetry of that client."""
    sink = Kept(folder)
    recorder = Recorder(RUN, Settings(resources_every_s=0.0), sink)
    try:
        with RoundSession(recorder, 3, MODEL) as rnd:
            message = answer(rnd.ticket("a"))
            recorder.flush()  # so that nothing of the round itself comes in between
            yield rnd, sink, message
    finally:
        recorder.close(Status.FINISHED)
        sink.journal.close()


def answer(ticket: bytes) -> bytes:
    session = fedvitals.client_session(ticket, model=MODEL, samples=5)
    assert isinstance(session, RemoteClient)
    local = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(local.parameters(), lr=0.1)
    with session as c:
        c.watch(local)
        with c.phase("download", bytes=10, note="x"):
            pass
        for x in c.batches([torch.ones(2, 3)]):
            loss = local(x).sum()
            loss.backward()
            optimizer.step()
            c.step(loss)
        logging.getLogger("far").warning("hello")
        c.submit(local, loss=0.5, f1=0.25)
        c._fail("submit", "pretended", "a failure too", "trace")
    return session.to_bytes()


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RoundSession, Kept, bytes]]:
    with server(tmp_path_factory.mktemp("runs")) as one:
        yield one


def told(rnd: RoundSession, sink: Kept, data: Any) -> list[Record]:
    """What merging these bytes adds; it must not raise. The ticket is as good as new afterwards."""
    before = len(sink.records)
    merge(rnd, data, "a")
    assert not rnd.recorder.troubles["the queue"]
    for ticket in rnd.tickets["a"].values():
        ticket.merged = False
    return [r for r in sink.records[before:] if not (isinstance(r, LogEntry) and r.logger == "fedvitals")]


REFUSED, TAKEN = "refused", "taken"


def answered(records: list[Record]) -> str:
    """Refused, with a failure alone; or taken, as records of client "a" of this round and of nobody else."""
    refused = [r for r in records if isinstance(r, Failure) and r.kind == "bad telemetry"]
    if refused:
        assert records == refused
        assert [(one.stage, one.client, one.round) for one in refused] == [("merge", "a", 3)]
        return REFUSED
    (own,) = [r for r in records if isinstance(r, Participation)]
    assert (own.client, own.round, own.base_version, own.attempt) == ("a", 3, 0, 0)
    assert own.metrics is not None
    assert json.loads(own.metrics)["self_reported"] is True
    for record in records:
        assert getattr(record, "client", "a") in ("a", None)
        assert set(getattr(record, "clients", ())) <= {"a"}
        for text in (getattr(record, "attributes", None), getattr(record, "shapes", None)):
            assert text is None or isinstance(json.loads(text), dict)
    return TAKEN


def test_honest_bytes_are_taken(honest: tuple[RoundSession, Kept, bytes]) -> None:
    """So that the laws below cannot hold by refusing everything."""
    records = told(*honest)
    assert answered(records) == TAKEN
    kinds = sorted({type(record).__name__ for record in records})
    assert kinds == ["Failure", "LogEntry", "Participation", "Span", "StepBlock", "UpdateBlock"]


@QUICK
@given(data=st.binary(max_size=400) | st.binary(max_size=200).map(lambda tail: MAGIC + tail))
def test_arbitrary_bytes_are_refused(honest: tuple[RoundSession, Kept, bytes], data: bytes) -> None:
    """With a failure, but for no bytes at all, which say nothing."""
    rnd, sink, _ = honest
    records = told(rnd, sink, data)
    assert len(records) == (1 if data else 0)
    if records:
        assert answered(records) == REFUSED


@QUICK
@given(length=st.integers(0, 10**6))
def test_truncated_bytes_are_refused(honest: tuple[RoundSession, Kept, bytes], length: int) -> None:
    """However much is missing."""
    rnd, sink, data = honest
    cut = data[: 1 + length % (len(data) - 1)]
    records = told(rnd, sink, cut)
    assert len(records) == 1
    assert answered(records) == REFUSED


@settings(QUICK, max_examples=400)
@given(places=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=6))
def test_mutated_bytes_are_refused_or_harmless(
    honest: tuple[RoundSession, Kept, bytes], places: list[tuple[int, int]]
) -> None:
    """A change may hit a value and pass; it can never be another client's, or another round's."""
    rnd, sink, data = honest
    changed = bytearray(data)
    for place, value in places:
        changed[place % len(data)] = value
    assert answered(told(rnd, sink, bytes(changed))) in (REFUSED, TAKEN)


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just(10**400)
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner))


@settings(QUICK, max_examples=250)
@given(data=st.data())
def test_any_json_in_any_place_is_refused_or_harmless(
    honest: tuple[RoundSession, Kept, bytes], data: st.DataObject
) -> None:
    """Every field of the header, replaced by whatever JSON can hold."""
    rnd, sink, message = honest
    header, arrays = unpack(message)
    holder, key = data.draw(st.sampled_from(list(places_in(header))))
    holder[key] = data.draw(JSON)
    assert answered(told(rnd, sink, pack(header, arrays))) in (REFUSED, TAKEN)


def places_in(value: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    keys: Any = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in list(keys):
        if key != "trace":
            yield value, key
        if depth < 3:
            yield from places_in(value[key], depth + 1)


@settings(QUICK, max_examples=200)
@given(data=st.data())
def test_any_arrays_are_refused_or_harmless(honest: tuple[RoundSession, Kept, bytes], data: st.DataObject) -> None:
    """Left out, of other shapes, of other types, or full of what is not finite."""
    rnd, sink, message = honest
    header, arrays = unpack(message)
    changed = dict(arrays)
    name = data.draw(st.sampled_from(sorted(arrays)))
    how = data.draw(st.sampled_from(["gone", "shape", "type", "nan", "twice"]))
    if how == "gone":
        del changed[name]
    elif how == "shape":
        changed[name] = np.zeros(data.draw(st.lists(st.integers(0, 5), max_size=4)), arrays[name].dtype)
    elif how == "type":
        changed[name] = arrays[name].astype(data.draw(st.sampled_from(["f4", "f2", "i1", "i4", "u4"])))
    elif how == "nan" and arrays[name].dtype.kind == "f":
        changed[name] = np.full_like(arrays[name], data.draw(st.sampled_from([np.nan, np.inf, -np.inf])))
    else:
        changed[f"{name}2"] = arrays[name]
    assert answered(told(rnd, sink, pack(header, changed))) in (REFUSED, TAKEN)


CLAIMS: dict[str, Any] = {
    "long header": MAGIC + struct.pack("<I", 2**32 - 1) + b"{}",
    "too long header": MAGIC + struct.pack("<I", MOST_HEADER + 1) + b" " * (MOST_HEADER + 1),
    "deep": MAGIC + struct.pack("<I", 5000) + b"[" * 5000,
    "huge array": MAGIC + struct.pack("<I", 60) + b'{"arrays": [["stats", "f4", [16777216, 16777216, 2]]]}'.ljust(60),
    "negative": MAGIC + struct.pack("<I", 40) + b'{"arrays": [["a", "f4", [-1, -1]]]}'.ljust(40),
    "objects": MAGIC + struct.pack("<I", 40) + b'{"arrays": [["a", "O", [1]]]}'.ljust(40),
    "big": b"x" * (MOST_BYTES + 1),
    "strided": memoryview(bytes(16))[::2],
    "text": "text",
    "number": 7,
    "list": [1, 2],
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_claims_of_huge_sizes_are_refused_before_memory_is_taken(
    honest: tuple[RoundSession, Kept, bytes], claim: str
) -> None:
    """Nothing is made room for that has not arrived."""
    rnd, sink, _ = honest
    tracemalloc.start()
    records = told(rnd, sink, CLAIMS[claim])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert answered(records) == REFUSED
    assert len(records) == 1
    assert peak < 4 * MOST_HEADER


def test_a_failing_message_warns_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """However many come."""
    with server(tmp_path) as (rnd, sink, _):
        for index in range(20):
            assert answered(told(rnd, sink, b"bad %d" % index)) in (REFUSED, TAKEN)
    assert len([record for record in caplog.records if "could not be used" in record.getMessage()]) == 1


@given(ticket=st.binary(max_size=300) | JSON.map(lambda value: json.dumps(value).encode()))
def test_arbitrary_tickets_give_inert_sessions(ticket: bytes) -> None:
    """Whatever a client is sent as its ticket, its training goes on."""
    with fedvitals.client_session(ticket, model=MODEL) as c:
        assert isinstance(c, NoClient)
        c.submit(MODEL)
    assert c.to_bytes() == b""


@given(data=st.data())
def test_mutated_tickets_never_stop_a_client(data: st.DataObject) -> None:
    """A ticket whose fields are anything gives an inert session, or one that works."""
    words = {"v": 1, "run": "r", "round": 0, "attempt": 0, "version": 0, "trace": "t", "sent": 0, "level": "open"}
    words[data.draw(st.sampled_from(sorted(words)))] = data.draw(JSON)
    with fedvitals.client_session(json.dumps(words).encode(), model=MODEL) as c:
        c.submit(MODEL)
    assert isinstance(c.to_bytes(), bytes)


ARRAYS = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=10),
    st.builds(
        lambda code, shape: (np.arange(int(np.prod(shape))) % 100).astype(code).reshape(shape),
        st.sampled_from(["f4", "f2", "i1", "i4", "u4"]),
        st.lists(st.integers(0, 4), max_size=4),
    ),
    max_size=6,
)


@given(header=st.dictionaries(st.text(max_size=5).filter(lambda key: key != "arrays"), JSON, max_size=4), arrays=ARRAYS)
def test_what_is_packed_is_unpacked(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Header and arrays come back as they were."""
    found, others = unpack(pack(header, arrays))
    assert json.dumps(found, sort_keys=True) == json.dumps(header, sort_keys=True)
    assert list(others) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(others[name], array)
        assert others[name].dtype == array.dtype


@given(tail=st.binary(min_size=1, max_size=10))
def test_bytes_beyond_what_is_described_are_refused(tail: bytes) -> None:
    """A message is what its header says, to the last byte."""
    with pytest.raises(TelemetryError, match="more than it describes"):
        unpack(pack({}, {"a": np.zeros(3, np.float32)}) + tail)


def test_a_server_without_a_model_takes_the_scalars(honest: tuple[RoundSession, Kept, bytes]) -> None:
    """There is nothing to judge the update's statistics by."""
    header, arrays = unpack(honest[2])
    found = read_telemetry(header, arrays, None)
    assert (found.block, found.steps) == (None, None)
    assert found.measured["samples"] == 5
