"""The trace of a run: right by the format, true to the run, and written without holding the run in memory."""

from __future__ import annotations

import gzip
import io
import json
import tempfile
import tracemalloc
from collections import Counter, defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scripted import a_round, ns, span, work

from fedvitals.bench import made_up
from fedvitals.export.perfetto import write_trace
from fedvitals.show.cli.main import main
from fedvitals.store import SQLiteStore
from fedvitals.vocabulary import Evaluation, Failure, Outcome, Record, ResourceSample, Round, Run, Span, Status

Capture = pytest.CaptureFixture[str]
Event = dict[str, Any]
NEEDED = {
    "X": {"name", "cat", "ts", "dur", "pid", "tid"},
    "i": {"name", "cat", "ts", "pid", "tid", "s"},
    "C": {"name", "ts", "pid", "args"},
    "M": {"name", "pid", "tid", "args"},
    "s": {"name", "cat", "id", "ts", "pid", "tid"},
    "f": {"name", "cat", "id", "ts", "pid", "tid", "bp"},
}
SERVER, CLIENTS, BATCHES = 1, 2, 3


def _store(folder: Path, records: list[Record], end: float = 10) -> None:
    run = Run("scripted", "scripted", Status.FINISHED, 0, ended_ns=ns(end))
    with closing(SQLiteStore(folder).create(run)) as journal:
        journal.append([run, *records])


def _traced(folder: Path, rounds: range | None = None) -> list[Event]:
    file = io.StringIO()
    with closing(SQLiteStore(folder).open("last")) as reader:
        written = write_trace(reader, file, rounds=rounds)
    document = json.loads(file.getvalue())
    events: list[Event] = document["traceEvents"]
    assert document["displayTimeUnit"] == "ms"
    assert written.events == len(events)
    check(events)
    return events


def check(events: list[Event]) -> None:
    """What the format asks for: each kind's keys, sane times, names for all tracks, nesting, arrows in pairs."""
    for event in events:
        assert event["ph"] in NEEDED, event
        assert event.keys() >= NEEDED[event["ph"]], event
        assert event.get("ts", 0) >= 0, event
        assert event.get("dur", 0) >= 0, event
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert len(named) == sum(e["name"] == "thread_name" for e in events)
    assert {(e["pid"], e["tid"]) for e in events if e["ph"] in "Xisf"} <= named
    assert {e["pid"] for e in events} <= {e["pid"] for e in events if e["name"] == "process_name"}
    _check_nesting(events)
    _check_arrows(events)


def _check_nesting(events: list[Event]) -> None:
    """On one track things lie inside or beside each other."""
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for stretches in tracks.values():
        assert [start for start, _ in stretches] == sorted(start for start, _ in stretches)
        going_on: list[float] = []
        for start, end in stretches:
            while going_on and going_on[-1] <= start + 1e-6:
                going_on.pop()
            assert not going_on or end <= going_on[-1] + 1e-6
            going_on.append(end)


def _check_arrows(events: list[Event]) -> None:
    """Each begins once and ends once, not before, and both ends lie inside of something."""
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    counts = Counter(e["id"] for e in events if e["ph"] in "sf")
    assert starts.keys() == ends.keys()
    assert set(counts.values()) <= {2}
    stands = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            stands[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for event in (*starts.values(), *ends.values()):
        inside = [start <= event["ts"] < end for start, end in stands[event["pid"], event["tid"]]]
        assert any(inside), event


def _of(events: list[Event], kind: str, **values: Any) -> list[Event]:
    return [e for e in events if e["ph"] == kind and all(e.get(key) == value for key, value in values.items())]


def _tracks(events: list[Event], process: int) -> dict[str, int]:
    return {e["args"]["name"]: e["tid"] for e in events if e["name"] == "thread_name" and e["pid"] == process}


def _simple() -> list[Record]:
    return [
        a_round(0, 0, 6),
        span(1, "select", 0, 1),
        work("a", 1, 3, {"train": 2}),
        work("b", 1, 5, {"train": 1, "upload": 3})._replace(wire_bytes_up=700, wire_bytes_down=50),
        span(2, "aggregate", 5, 6),
        a_round(1, 6, 10),
        work("a", 6, 8, {"train": 2}, round=1, attempt=1, outcome=Outcome.FAILED),
        Failure(ns(8), "train", "ValueError", "broken\n\x1b[2J", 1, "a", 1),
        ResourceSample(ns(2), 1, 1000, 1000, 0.0, 1),
        Evaluation(0, ns(6), loss=float("nan"), accuracy=0.5),
        Span(9, None, "warm up", ns(0.1), ns(0.4), thread="main"),
    ]


def test_a_trace_tells_what_happened_when(tmp_path: Path) -> None:
    """A track a client with its phases, the server's own, arrows there and back, counters, and the failure."""
    _store(tmp_path, _simple())
    events = _traced(tmp_path)
    tracks = _tracks(events, CLIENTS)
    assert list(tracks) == ["a", "b"]
    b = _of(events, "X", pid=CLIENTS, tid=tracks["b"])
    assert [(e["name"], e["ts"], e["dur"]) for e in b] == [
        ("round 0", 1e6, 4e6),
        ("train", 1e6, 1e6),
        ("upload", 2e6, 3e6),
    ]
    assert [e["name"] for e in _of(events, "X", pid=CLIENTS, cat="participation")] == [
        "round 0",
        "round 0",
        "round 1 (failed)",
    ]
    assert {e["name"] for e in _of(events, "X", pid=SERVER)} == {"round 0", "round 1", "select", "aggregate", "warm up"}
    (failed,) = _of(events, "i")
    assert (failed["name"], failed["tid"], failed["ts"]) == ("ValueError", tracks["a"], 8e6)
    assert failed["args"]["message"] == "broken\\n\\x1b[2J"
    counted = {(e["name"], *e["args"].items()) for e in _of(events, "C")}
    assert counted == {
        ("bytes a round", ("up", 700.0), ("down", 50.0)),
        ("memory", ("bytes", 1000)),
        ("test", ("accuracy", 0.5)),
    }


def test_the_server_stands_above_the_clients(tmp_path: Path) -> None:
    """By its sort index: a viewer shows lower ones first, and by itself it would show whoever has done most."""
    _store(tmp_path, _simple())
    places = {e["pid"]: e["args"]["sort_index"] for e in _traced(tmp_path) if e["name"] == "process_sort_index"}
    assert places.keys() == {SERVER, CLIENTS, BATCHES}
    assert min(places, key=lambda process: places[process]) == SERVER


def test_names_are_written_as_json_has_them(tmp_path: Path) -> None:
    """Quotes, backslashes and letters of other alphabets; and instants to the nanosecond, however late."""
    odd = 'a "quoted" \\ name: Zoë'
    late = work(odd, 1, 3)._replace(start_ns=86_400 * 10**9 + 1, end_ns=86_400 * 10**9 + 2_001)
    _store(tmp_path, [a_round(0, 0, 90_000), late], end=90_000)
    events = _traced(tmp_path)
    assert list(_tracks(events, CLIENTS)) == [odd]
    (one,) = _of(events, "X", cat="participation")
    assert (one["ts"], one["dur"]) == (86_400_000_000.001, 2)


def test_arrows_go_from_the_server_to_the_client_and_back(tmp_path: Path) -> None:
    """From the selection to the client, and to the aggregation; who failed sends none back."""
    _store(tmp_path, _simple())
    events = _traced(tmp_path)
    server = _tracks(events, SERVER)
    assert Counter(e["name"] for e in _of(events, "s")) == {"model": 3, "update": 2}
    to_b = next(e for e in _of(events, "f", name="model") if e["tid"] == _tracks(events, CLIENTS)["b"])
    (left,) = _of(events, "s", id=to_b["id"])
    assert (left["pid"], left["ts"], to_b["ts"]) == (SERVER, pytest.approx(1e6, abs=1), 1e6)
    back = _of(events, "f", name="update")
    assert {(e["pid"], e["ts"]) for e in back} == {(SERVER, 5e6)}
    assert {e["tid"] for e in back} <= set(server.values())


def test_clients_of_a_batch_have_its_phases_beside_them(tmp_path: Path) -> None:
    """The batch has a track with its phases; on its own track each client has the batch with its share of it."""
    batch = [work(name, 1, 4, {"train": 1.0})._replace(attributed=1, chunk=0) for name in "abc"]
    _store(tmp_path, [a_round(0, 0, 5), *batch])
    events = _traced(tmp_path)
    assert [(e["name"], e["dur"]) for e in _of(events, "X", pid=BATCHES)] == [("round 0", 3e6), ("train", 3e6)]
    own = _of(events, "X", pid=CLIENTS)
    assert [e["name"] for e in own] == ["round 0"] * 3
    assert {e["args"]["share_train_s"] for e in own} == {1.0}


def test_what_overlaps_gets_a_line_of_its_own(tmp_path: Path) -> None:
    """Two attempts of one client at once, and spans that cross."""
    records: list[Record] = [
        a_round(0, 0, 6),
        work("a", 0, 4, {"train": 4}),
        work("a", 2, 6, {"train": 4}, attempt=1),
        span(1, "aggregate", 0, 3),
        span(2, "evaluate", 2, 5),
    ]
    _store(tmp_path, records)
    events = _traced(tmp_path)
    assert list(_tracks(events, CLIENTS)) == ["a", "a (2)"]
    assert len(_tracks(events, SERVER)) == 3


def test_some_rounds_are_traced_alone(tmp_path: Path) -> None:
    """Nothing of the others is in it."""
    _store(tmp_path, _simple())
    events = _traced(tmp_path, rounds=range(1, 2))
    assert {e["name"] for e in _of(events, "X", cat="round")} == {"round 1"}
    assert min(e["ts"] for e in events if e["ph"] in "XisfC") >= 6e6


_instant = st.integers(-5, 60).map(lambda tenths: tenths / 10)
_work = st.tuples(
    _instant, _instant, st.dictionaries(st.sampled_from(["train", "upload", "wait"]), _instant, max_size=2)
)
_span = st.tuples(
    st.sampled_from(["select", "aggregate", "own"]), _instant, st.none() | _instant, st.sampled_from([None, "c0"])
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(_work, max_size=6),
    st.lists(_span, max_size=5),
    st.lists(st.tuples(_instant, st.none() | _instant), max_size=3),
)
def test_whatever_was_recorded_the_trace_is_right_by_the_format(
    works: list[tuple[float, float, dict[str, float]]],
    spans: list[tuple[str, float, float | None, str | None]],
    rounds: list[tuple[float, float | None]],
) -> None:
    """Clocks that jump, spans that never end, rounds that overlap or are missing."""
    records: list[Record] = [
        *(a_round(number, *edges) for number, edges in enumerate(rounds)),
        *(work(f"c{n % 2}", a, b, phases, attempt=n, round=n % 3) for n, (a, b, phases) in enumerate(works)),
        *(
            span(n + 1, name, a, b, client=client, attempt=0 if client else None, round=n % 2)
            for n, (name, a, b, client) in enumerate(spans)
        ),
    ]
    with tempfile.TemporaryDirectory() as folder:
        _store(Path(folder), records, end=5.5)
        events = _traced(Path(folder))
    assert len(_of(events, "X", cat="round")) == len(rounds)


class _Nowhere(io.StringIO):
    """Takes any text, and keeps its length."""

    length = 0

    def write(self, text: str) -> int:
        self.length += len(text)
        return len(text)


def test_a_long_run_takes_no_more_memory_than_a_short_one(tmp_path: Path) -> None:
    """Twice the rounds give twice the trace, at the same peak: what is held is one round."""
    found = [_measured(tmp_path / str(rounds), rounds) for rounds in (2, 30, 60)]  # the first one warms up
    (short, short_peak), (long, long_peak) = found[1:]
    assert long > 1.9 * short
    assert long_peak < 1.2 * short_peak


def _measured(folder: Path, rounds: int, clients: int = 40) -> tuple[int, int]:
    """Characters of the trace, and the most bytes that were held while it was written."""
    if not folder.exists():
        every = made_up.participations(clients * rounds, clients, cohort=clients)
        works = [one._replace(attributed=0, end_ns=one.start_ns + 60_000_000) for one in every]
        ends = [Round(number, number, number * 65_000_000, (number + 1) * 65_000_000) for number in range(rounds)]
        spans = [Span(number, None, "free", number, number + 1) for number in range(150 * rounds)]
        _store(folder, [*ends, *works, *spans], end=0.065 * rounds)
    sink = _Nowhere()
    with closing(SQLiteStore(folder).open("last")) as reader:
        tracemalloc.start()
        write_trace(reader, sink)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return sink.length, peak


def test_the_command_writes_a_file_and_says_its_size(tmp_path: Path, capsys: Capture) -> None:
    """Plain or packed, with the same events; programs get the numbers."""
    _store(tmp_path / "runs", _simple())
    plain, packed = tmp_path / "t.json", tmp_path / "t.json.gz"
    for path in (plain, packed):
        assert main(["export", "last", "--to", "perfetto", "-o", str(path)]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"{plain} written, ")
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    assert main(["export", "last", "--to", "perfetto", "-o", str(plain), "--rounds", "0", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["rounds"], document["left_out"], document["size_bytes"]) == (1, 0, plain.stat().st_size)
    assert document["events"] == len(json.loads(plain.read_text())["traceEvents"])


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--to", "perfeto"), "--to 'perfeto' is no format; did you mean 'perfetto'?"),
        (("--to", "csv"), "--to 'csv' is no format; known: perfetto"),
        (("--to", "perfetto", "--rounds", "7-9"), "--rounds: the run has none of the rounds 7 to 9"),
        (("--to", "perfetto", "-o", "/nowhere/t.json"), "-o /nowhere/t.json: No such file or directory"),
    ],
)
def test_what_cannot_be_exported_is_refused_in_one_line(
    argv: tuple[str, ...], said: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2, and no file is left."""
    _store(tmp_path / "runs", _simple())
    monkeypatch.chdir(tmp_path)
    assert main(["export", "last", *argv]) == 2
    assert capsys.readouterr().err == f"fedvitals: {said}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


@pytest.mark.parametrize("words", ["x", "5-3", "-3", "1-"])
def test_rounds_that_are_none_are_refused(words: str, capsys: Capture) -> None:
    """Exit code 2, with what would be right."""
    with pytest.raises(SystemExit, match="2"):
        main(["export", "last", "--to", "perfetto", f"--rounds={words}"])
    assert "right is 10-19, or 7" in capsys.readouterr().err


def test_a_run_with_nothing_in_it_is_a_trace_of_nothing(tmp_path: Path) -> None:
    """Still right by the format."""
    _store(tmp_path, [])
    assert [e["ph"] for e in _traced(tmp_path)] == ["M"] * 6
