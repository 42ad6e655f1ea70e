"""Each thing that does not fit in telemetry is named; each bound is held before anything is made of the bytes."""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from apart import session, told
from watching import read, round_of, small_model, spans_of

from fedvitals.capture.inspection import LONGEST_JSON, read_telemetry
from fedvitals.capture.memory import MOST, MemorySink
from fedvitals.capture.wire import MAGIC, MOST_ARRAYS, MOST_BYTES, MOST_HEADER, unpack
from fedvitals.errors import TelemetryError
from fedvitals.vocabulary import Layout, LogEntry, Span

Header = dict[str, Any]
Arrays = dict[str, np.ndarray]


@pytest.fixture(autouse=True)
def without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What memory a client takes is for the tests of memory: here it would be one number more that differs."""
    monkeypatch.setenv("FEDVITALS_MEMORY", "off")


@pytest.fixture
def message(monkeypatch: pytest.MonkeyPatch) -> tuple[Header, Arrays, Layout]:
    """What an honest client says, and the layout it is judged by."""
    monkeypatch.setenv("FEDVITALS_STEPS", "every")
    with round_of(small_model()) as rnd:
        header, arrays = unpack(told(rnd.ticket("a")))
        assert rnd.buffer is not None
        return header, dict(arrays), rnd.buffer.reference.flattener.layout


def put(*path: Any, to: Any) -> Callable[[Header, Arrays], None]:
    """A change of the header at this place."""

    def change(header: Header, arrays: Arrays) -> None:
        holder: Any = header
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = to

    return change


def array(name: str, values: Any) -> Callable[[Header, Arrays], None]:
    def change(header: Header, arrays: Arrays) -> None:
        arrays[name] = values(arrays[name]) if callable(values) else values

    return change


def without(name: str) -> Callable[[Header, Arrays], None]:
    def change(header: Header, arrays: Arrays) -> None:
        del arrays[name]

    return change


LONG = json.dumps({"a": "x" * LONGEST_JSON})
REFUSED: list[tuple[Callable[[Header, Arrays], None], str]] = [
    (put("v", to=2), "version 2"),
    (put("duration", to=-1), "duration"),
    (put("duration", to=10**18), "duration"),
    (put("duration", to=True), "duration"),
    (put("measured", to=[]), "no measurements"),
    (put("measured", "samples", to=1.5), "samples is not a count"),
    (put("measured", "samples", to=2**62), "samples is not a count"),
    (put("measured", "steps", to=-2), "steps is not a count"),
    (put("measured", "loss", to="low"), "loss is not a number"),
    (put("measured", "loss", to=10**400), "loss is not a number"),
    (put("measured", "train_s", to=True), "train_s is not a number"),
    (put("measured", "received", to=7), "text in it is not text"),
    (put("measured", "metrics", to="{"), "not JSON"),
    (put("measured", "metrics", to="[1]"), "not a JSON object"),
    (put("measured", "metrics", to=LONG), "at most 8192 characters"),
    (put("layers", to=None), "does not describe its layers"),
    (put("layers", 0, to="0.weight"), "[name, shape]"),
    (array("stats", np.zeros((1, 3, 6), np.float32)), "stats has shape"),
    (array("stats", lambda old: old.astype(np.float16)), "stats has shape"),
    (array("sketches", lambda old: np.full_like(old, np.nan)), "sketch is not finite"),
    (array("unit_sketches", np.zeros((1, 3, 7), np.int8)), "unit_sketches has shape"),
    (without("loss_steps"), "without their numbers"),
    (array("losses", np.zeros((1, 33), np.float32)), "at most 32 steps"),
    (array("losses", np.zeros((2, 3), np.float32)), "losses has shape"),
    (array("loss_steps", np.zeros((1, 2), np.int32)), "loss_steps has shape"),
    (put("steps", to=[0, 1]), "gradients have shape"),
    (put("steps", to=[0, 1, -1]), "not step numbers"),
    (put("steps", to=[0, 1, 2**31]), "not step numbers"),
    (array("gradients", lambda old: np.repeat(old, 2, 2)), "gradients have shape"),
    (array("gradients", lambda old: old.astype(np.int32)), "not float32"),
    (put("spans", to={}), "not a list"),
    (put("spans", to=[["a", 0, 1, None]]), "do not have 5 fields"),
    (put("spans", to=[["a", 0, 1, None, None]] * 501), "at most 500"),
    (put("spans", 0, 0, to=None), "text in it is not text"),
    (put("spans", 0, 1, to=10**17), "outside of its own duration"),
    (put("spans", 0, to=["train", 5, 4, None, None]), "ends before it begins"),
    (put("spans", 0, 4, to="x"), "not JSON"),
    (put("failures", to=[[0, "s", "k", "m", None, "[]"]]), "not a JSON object"),
    (put("failures", to=[[-1, "s", "k", "m", None, None]]), "outside of its own duration"),
    (put("failures", to=[[0, "s", "k", "m", None, None]] * 21), "at most 20"),
    (put("logs", to=[[0, "INFO", "l", 7, None]]), "text in it is not text"),
    (put("logs", to=[[0, "INFO", "l", "m", None]] * 201), "at most 200"),
]


@pytest.mark.parametrize(("change", "says"), REFUSED, ids=[f"{i}-{says}" for i, (_, says) in enumerate(REFUSED)])
def test_what_does_not_fit_is_refused_by_name(
    message: tuple[Header, Arrays, Layout], change: Callable[[Header, Arrays], None], says: str
) -> None:
    """One thing changed in honest telemetry, and one error that says which."""
    header, arrays, layout = message
    assert read_telemetry(header, arrays, layout).block is not None
    change(header, arrays)
    with pytest.raises(TelemetryError) as refused:
        read_telemetry(header, arrays, layout)
    assert says in str(refused.value)
    assert len(str(refused.value)) < 300


OTHERS: list[tuple[Callable[[Header, Arrays], None], str]] = [
    (put("layers", to=[]), "0 layers, the model of the round 4"),
    (put("layers", to=[["x", []]] * 7), "7 layers"),
    (put("layers", 0, to=["0.weight", [4, 5]]), "0.weight has another shape"),
    (put("layers", 0, to=["other" * 100, [5, 4]]), "other stands where"),
]


@pytest.mark.parametrize("submits", [True, False], ids=["submits", "gradients alone"])
@pytest.mark.parametrize(("change", "says"), OTHERS, ids=[says for _, says in OTHERS])
def test_an_update_of_other_layers_costs_what_is_told_of_layers(
    message: tuple[Header, Arrays, Layout], change: Callable[[Header, Arrays], None], says: str, submits: bool
) -> None:
    """A failure says where they differ; all else that the client measured is taken."""
    header, arrays, layout = message
    if not submits:
        arrays = {"gradients": arrays["gradients"]}
    honest = read_telemetry(header, arrays, layout)
    change(header, arrays)
    found = read_telemetry(header, arrays, layout)
    (failure,) = found.failures
    assert (failure.stage, failure.kind, failure.at_ns) == ("submit", "shape mismatch", found.duration_ns)
    assert says in failure.message
    assert len(failure.message) < 300
    assert (found.block, found.steps) == (None, None)
    assert found.measured == honest.measured | {"update_norm": None, "nonfinite": None}
    assert (found.spans, found.logs, found.outcome) == (honest.spans, honest.logs, honest.outcome)


def test_long_texts_are_cut_to_what_the_store_keeps(message: tuple[Header, Arrays, Layout]) -> None:
    """Too long is no reason to refuse what a failure says."""
    header, arrays, layout = message
    long = "x" * 100_000
    header["failures"] = [[0, long, long, long, long, None]]
    header["logs"] = [[0, long, long, long, long]]
    found = read_telemetry(header, arrays, layout)
    (failure,), (entry,) = found.failures, found.logs
    lengths = [len(text or "") for text in (failure.stage, failure.kind, failure.message, failure.traceback)]
    assert lengths == [100, 200, 2_000, 32_768]
    assert [len(text or "") for text in entry[1:4]] == [20, 200, 8_192]


def test_the_norm_is_what_the_layers_say(message: tuple[Header, Arrays, Layout]) -> None:
    """A client cannot report one norm of its update and other norms of its layers."""
    header, arrays, layout = message
    honest = header["measured"]["update_norm"]
    header["measured"]["update_norm"] = 1e-9
    assert read_telemetry(header, arrays, layout).measured["update_norm"] == pytest.approx(honest, rel=1e-6)


def wire(header: bytes, length: int | None = None, body: bytes = b"") -> bytes:
    return MAGIC + struct.pack("<I", len(header) if length is None else length) + header + body


def described(*arrays: Any) -> bytes:
    return json.dumps({"arrays": list(arrays)}).encode()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "does not begin"),
        (b"FVT2" + bytes(8), "does not begin"),
        (b"x" * (MOST_BYTES + 1), f"{MOST_BYTES + 1} bytes, at most {MOST_BYTES}"),
        (wire(b"{}", 3), "claims a header of 3 bytes and has 2"),
        (wire(b"{}".ljust(MOST_HEADER + 1)), f"claims a header of {MOST_HEADER + 1}"),
        (wire(b"\xff"), "not JSON"),
        (wire(b"[1]"), "not an object"),
        (wire(b'{"arrays": 7}'), "lists a int of arrays"),
        (wire(described(*[["a", "f4", [1]]] * (MOST_ARRAYS + 1))), f"lists {MOST_ARRAYS + 1} arrays"),
        (wire(described("a")), "[name, type, shape]"),
        (wire(described(["a", "f8", [1]])), "unknown type 'f8'"),
        (wire(described(["a", 4, [1]])), "unknown type '4'"),
        (wire(described(["a", "f4", [1] * 5])), "impossible shape"),
        (wire(described(["a", "f4", [True]])), "impossible shape"),
        (wire(described(["a", "f4", [MOST_BYTES + 1]])), "impossible shape"),
        (wire(described(["a", "f4", [3]]), body=bytes(8)), "claims 12 bytes for 'a' and has 8"),
        (wire(described(["a", "f4", [3]]), body=bytes(13)), "1 bytes more"),
        ("text", "is str, not bytes"),
    ],
)
def test_what_is_no_message_is_refused_by_name(data: Any, says: str) -> None:
    """Before anything is made of it."""
    with pytest.raises(TelemetryError) as refused:
        unpack(data)
    assert says in str(refused.value)


def test_a_client_keeps_no_more_than_its_message_may_carry() -> None:
    """What comes beyond is counted, and the first ones stay: a failure's cause comes first."""
    sink = MemorySink()
    spans = [Span(index, None, "train", 0, 1) for index in range(MOST[Span] + 3)]
    sink.put(spans, 0)
    sink.put([LogEntry(0, "INFO", "l", "m")], 0)
    assert sink.kept[Span] == spans[: MOST[Span]]
    assert sink.dropped == {"Span": 3}
    assert len(sink.kept[LogEntry]) == 1


def test_the_statistics_are_sent_however_much_else_there_is() -> None:
    """Details never push out what matters."""
    logger = logging.getLogger("mine")
    with round_of(small_model()) as rnd:
        with session(rnd.ticket("a"), small_model()) as c:
            for _ in range(6_000):
                with c.phase("wait"):
                    pass
            logger.warning("last")
            c.submit(small_model(1), loss=0.5)
        rnd.merge(c.to_bytes(), client="a")
    with read() as reader:
        (one,) = reader.participations()
        assert len(reader.update_stats(one)) == 4
        assert len(spans_of(reader)) == 500
        assert [entry.message for entry in reader.logs()] == ["last"]
