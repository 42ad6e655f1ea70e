"""A run -> a trace for Perfetto: who did what at which instant, with arrows between the server and the clients.

It goes through the run round by round and holds one round at a time; what it remembers besides grows with the number of
clients, not with the length of the run.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import count
from typing import NamedTuple, TextIO

import numpy as np

from fedvitals.export.trace_events import Args, TraceWriter, Track
from fedvitals.export.tracks import Tracks
from fedvitals.printable import safe
from fedvitals.profile.phases import phases_of_all
from fedvitals.profile.timeline import NOBODY, Stretch, Timeline, timeline_of
from fedvitals.store.protocol import RunReader
from fedvitals.store.table import table_of
from fedvitals.vocabulary import PHASES, Outcome, Participation, Round, Run, Span

SERVER, CLIENTS, BATCHES = 1, 2, 3
PROCESSES = {SERVER: "server", CLIENTS: "clients", BATCHES: "batches of clients"}
ROUNDS, THREADS = "rounds", "server"
MOST_TEXT = 500
_LOST = (Outcome.FAILED, Outcome.DROPPED)
_NUMBERS = ("samples", "steps", "epochs", "loss", "first_loss", "accuracy", "update_norm", "cosine", "staleness")
_BYTES = ("wire_bytes_up", "wire_bytes_down", "peak_memory_bytes")


class Written(NamedTuple):
    """What became of it."""

    events: int
    rounds: int
    left_out: int  # things that took time, for which there were too many lines


def write_trace(reader: RunReader, file: TextIO, *, rounds: range | None = None) -> Written:
    """The whole run, or these rounds of it."""
    run = reader.run()
    writer = TraceWriter(
        file, {"run": safe(run.id), "name": safe(run.name), "started_unix_ns": str(run.started_unix_ns)}
    )
    for process, name in PROCESSES.items():
        writer.name_process(process, name)
    chosen = [one for one in reader.rounds() if rounds is None or one.number in rounds]
    trace = _Trace(run, writer)
    for one in chosen:
        trace.round(one, reader.participations(round=one.number), reader.spans(round=one.number))
    trace.rest(reader, {one.number for one in chosen}, whole=rounds is None)
    writer.close()
    return Written(writer.events, len(chosen), trace.tracks.left_out)


class _Thing(NamedTuple):
    """Something that took time, before it has a place."""

    start_ns: int
    end_ns: int
    name: str
    kind: str
    args: Args


class _Slice(NamedTuple):
    """Something that stands on a track, for arrows to begin and end at."""

    track: Track
    start_ns: int
    end_ns: int

    def at(self, instant_ns: int) -> tuple[Track, int] | None:
        """The nearest instant inside of it; None where it has none inside."""
        if self.end_ns - self.start_ns < 2:
            return None
        return self.track, min(max(instant_ns, self.start_ns), self.end_ns - 1)


class _Trace:
    """A trace that is being written."""

    def __init__(self, run: Run, writer: TraceWriter) -> None:
        self._run, self._writer = run, writer
        self.tracks = Tracks(writer)
        self._flows = count(1)
        self._seen: tuple[float, float] = (math.inf, 0)  # from when to when there were rounds

    def round(self, one: Round, participations: Sequence[Participation], spans: Sequence[Span]) -> None:
        """All of one round."""
        clients, table = table_of(participations)
        timeline = timeline_of(self._run, [one], clients, table, spans)
        (ended,) = timeline.rounds
        end_ns = ended.end_ns or ended.start_ns
        self._seen = (min(self._seen[0], ended.start_ns), max(self._seen[1], end_ns))
        counts = {"selected": one.selected, "used": one.used, "failed": one.failed}
        whole = self._stand(
            SERVER, ROUNDS, ROUNDS, _Thing(ended.start_ns, end_ns, f"round {one.number}", "round", counts)
        )
        server = self._spans([span for span in spans if span.client is None], end_ns)
        own: dict[tuple[str | None, int | None], list[Span]] = defaultdict(list)
        for span in spans:
            if span.client is not None and span.name not in PHASES:
                own[span.client, span.attempt].append(span)
        stretches = phases_of_all(timeline)
        self._batches(timeline, stretches, one.number)
        phases = _by_attempt(timeline, stretches)
        for participation in participations:
            key = (participation.client, participation.attempt)
            inside = [_thing(span, end_ns) for span in own.pop(key, ())]
            piece = self._work(timeline, participation, phases.get(key, ()), inside)
            if piece is not None:
                self._arrows(participation, piece, whole, server)
        for left in own.values():
            self._spans(left, end_ns)
        moved = {"up": _sum(table.wire_bytes_up), "down": _sum(table.wire_bytes_down)}
        known = {way: total for way, total in moved.items() if total is not None}
        if known:
            self._writer.counter(SERVER, "bytes a round", ended.start_ns, known)

    def rest(self, reader: RunReader, rounds: set[int], *, whole: bool) -> None:
        """What belongs to no round or is kept apart: other spans, failures, memory, evaluations."""
        if whole:
            for span in reader.iterate_spans():
                if span.round is None or span.round not in rounds:
                    self._spans([span], span.start_ns if self._run.ended_ns is None else self._run.ended_ns)
        for failure in reader.failures():
            if whole or failure.round in rounds:
                track = self._track_of(failure.client)
                told = {
                    "stage": safe(failure.stage),
                    "message": safe(failure.message, MOST_TEXT),
                    "round": failure.round,
                }
                self._writer.instant(track, safe(failure.kind, 80), max(failure.at_ns, 0), "failure", told)
        self._counters(reader, rounds, whole=whole)

    def _counters(self, reader: RunReader, rounds: set[int], *, whole: bool) -> None:
        low, high = self._seen if not whole else (0, math.inf)
        for sample in reader.resources():
            where = "memory" if sample.device is None else f"memory of {safe(sample.device, 20)}"
            used = sample.rss_bytes if sample.device is None else sample.device_used_bytes
            if used is not None and low <= sample.at_ns <= high:
                self._writer.counter(SERVER, where, sample.at_ns, {"bytes": used})
        for judged in reader.evaluations():
            if judged.client is None and (whole or judged.round in rounds):
                for name, value in (("loss", judged.loss), ("accuracy", judged.accuracy)):
                    if value is not None and math.isfinite(value):
                        self._writer.counter(SERVER, safe(judged.split, 20), max(judged.at_ns, 0), {name: value})

    def _batches(self, timeline: Timeline, stretches: Sequence[Sequence[Stretch]], number: int) -> None:
        """Batches of clients, each with its phases."""
        works = timeline.works
        for row in np.flatnonzero(works.client == NOBODY).tolist():
            whole = _Thing(int(works.start_ns[row]), int(works.end_ns[row]), f"round {number}", "batch", {})
            for thing in (whole, *_phases(stretches[row])):
                self._stand(BATCHES, "batches", "batches", thing)

    def _work(
        self, timeline: Timeline, one: Participation, phases: Sequence[Stretch], inside: Sequence[_Thing]
    ) -> _Slice | None:
        """A participation on its client's track, with its phases inside. A batch's phases are not the client's."""
        start = min(max(one.start_ns, 0), timeline.end_ns)
        end = min(max(one.end_ns, start), timeline.end_ns)
        name = f"round {one.round}" if one.outcome == Outcome.USED else f"round {one.round} ({safe(one.outcome, 20)})"
        label = _client(one.client)
        whole = self._stand(CLIENTS, one.client, label, _Thing(start, end, name, "participation", _about(one)))
        for thing in sorted((*_phases(phases), *inside), key=_outer_first):
            self._stand(CLIENTS, one.client, label, thing)
        return whole

    def _spans(self, spans: Iterable[Span], end_ns: int) -> list[_Slice]:
        """Spans as they were recorded; one that never ended lasts until `end_ns`."""
        found = []
        things = [(span, _thing(span, end_ns)) for span in spans]
        for span, thing in sorted(things, key=lambda pair: _outer_first(pair[1])):
            where = (SERVER, f"thread {span.thread}", THREADS)
            if span.thread is not None:
                where = (SERVER, f"thread {span.thread}", f"{THREADS}, {safe(span.thread, 40)}")
            if span.client is not None:
                where = (CLIENTS, span.client, _client(span.client))
            found.append(self._stand(*where, thing))
        return [one for one in found if one is not None]

    def _stand(self, process: int, key: str, label: str, thing: _Thing) -> _Slice | None:
        track = self.tracks.place(process, key, label, thing.start_ns, thing.end_ns)
        if track is None:
            return None
        self._writer.complete(track, thing.name, thing.start_ns, thing.end_ns, thing.kind, thing.args)
        return _Slice(track, thing.start_ns, thing.end_ns)

    def _track_of(self, client: str | None) -> Track:
        if client is None:
            return self.tracks.first(SERVER, ROUNDS, ROUNDS)
        return self.tracks.first(CLIENTS, client, _client(client))

    def _arrows(self, one: Participation, piece: _Slice, whole: _Slice | None, server: Sequence[_Slice]) -> None:
        """From what the server did last before the client began, and back to what it did first after the client ended;
        where that is not known, from and to the round. Who did not come back sends none back."""
        before = max(
            (each for each in server if each.start_ns <= piece.start_ns), key=lambda each: each.end_ns, default=whole
        )
        after = min(
            (each for each in server if each.start_ns >= piece.end_ns), key=lambda each: each.start_ns, default=whole
        )
        self._arrow("model", before, piece.start_ns, piece, piece.start_ns)
        if one.outcome not in _LOST:
            self._arrow("update", piece, piece.end_ns, after, piece.end_ns)

    def _arrow(self, name: str, source: _Slice | None, leaves: int, target: _Slice | None, arrives: int) -> None:
        start = source.at(leaves) if source is not None else None
        end = target.at(arrives) if target is not None else None
        if start is not None and end is not None:
            self._writer.flow(name, next(self._flows), start, end)


def _client(name: str) -> str:
    return f"client {safe(name, 80)}" if name.isdigit() else safe(name, 80)


def _outer_first(thing: _Thing) -> tuple[int, int]:
    return thing.start_ns, -thing.end_ns


def _thing(span: Span, end_ns: int) -> _Thing:
    start = max(span.start_ns, 0)
    last = max(span.end_ns if span.end_ns is not None else end_ns, start)
    told = {"attributes": safe(span.attributes, MOST_TEXT)} if span.attributes else {}
    told |= {"error": safe(span.error, MOST_TEXT)} if span.error else {}
    return _Thing(start, last, safe(span.name, 80), "phase" if span.name in PHASES else "span", told)


def _phases(stretches: Iterable[Stretch]) -> list[_Thing]:
    return [_Thing(one.start_ns, one.end_ns, one.phase, "phase", {}) for one in stretches]


def _by_attempt(timeline: Timeline, stretches: Sequence[Sequence[Stretch]]) -> dict[tuple[str, int], Sequence[Stretch]]:
    """The phases of a client's attempt; those of batches are nobody's."""
    works = timeline.works
    each = zip(works.client.tolist(), works.attempt.tolist(), stretches, strict=True)
    return {(timeline.clients[client], attempt): phases for client, attempt, phases in each if client != NOBODY}


def _about(one: Participation) -> Args:
    """What is known of it, as far as JSON has words for it."""
    numbers = {name: getattr(one, name) for name in (*_NUMBERS, *_BYTES)}
    known = {name: value for name, value in numbers.items() if value is not None and math.isfinite(value)}
    if one.attributed:
        known |= {f"share_{phase}_s": value for phase, value in one.phases_s.items() if math.isfinite(value)}
    return {"outcome": safe(one.outcome, 20), "attempt": one.attempt, **known}


def _sum(column: np.ndarray) -> float | None:
    known = column[np.isfinite(column)]
    return float(known.sum()) if len(known) else None
