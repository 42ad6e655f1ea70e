"""The Trace Event Format, which Perfetto and chrome://tracing open: events as JSON objects, written one by one.

Instants and lengths are in microseconds there; with three places they keep our nanoseconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, TextIO

Args = Mapping[str, Any]
_encoded = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class Track(NamedTuple):
    """Where an event stands: a line of its own in a group of lines."""

    process: int
    thread: int


class TraceWriter:
    """Events into a file. Nothing is kept of them but their number."""

    def __init__(self, file: TextIO, about: Args) -> None:
        self._file = file
        self.events = 0
        head = json.dumps({"displayTimeUnit": "ms", "otherData": about}, allow_nan=False)
        file.write(f'{head[:-1]}, "traceEvents": [')

    def close(self) -> None:
        self._file.write("\n]}\n")

    def complete(self, track: Track, name: str, start_ns: int, end_ns: int, kind: str, args: Args) -> None:
        """Something that took time. On one track these lie inside or beside each other."""
        length = {"ts": _us(start_ns), "dur": _us(end_ns - start_ns)}
        self._put({"ph": "X", "name": name, "cat": kind, **length, **_at(track), "args": args})

    def instant(self, track: Track, name: str, at_ns: int, kind: str, args: Args) -> None:
        """Something that happened."""
        self._put({"ph": "i", "s": "t", "name": name, "cat": kind, "ts": _us(at_ns), **_at(track), "args": args})

    def counter(self, process: int, name: str, at_ns: int, values: Mapping[str, float]) -> None:
        """Numbers from this instant on."""
        self._put({"ph": "C", "name": name, "ts": _us(at_ns), "pid": process, "tid": 0, "args": values})

    def flow(self, name: str, number: int, start: tuple[Track, int], end: tuple[Track, int]) -> None:
        """An arrow from what goes on at an instant of one track to what goes on at one of another."""
        same = {"name": name, "cat": "flow", "id": number}
        self._put({"ph": "s", **same, "ts": _us(start[1]), **_at(start[0])})
        self._put({"ph": "f", "bp": "e", **same, "ts": _us(end[1]), **_at(end[0])})

    def name_process(self, process: int, name: str) -> None:
        for kind, value in (("process_name", {"name": name}), ("process_sort_index", {"sort_index": process})):
            self._put({"ph": "M", "name": kind, "pid": process, "tid": 0, "ts": 0, "args": value})

    def name_thread(self, track: Track, name: str, place: int) -> None:
        """`place` says where among its neighbours it stands."""
        for kind, value in (("thread_name", {"name": name}), ("thread_sort_index", {"sort_index": place})):
            self._put({"ph": "M", "name": kind, **_at(track), "ts": 0, "args": value})

    def _put(self, event: Args) -> None:
        self._file.write(f"{',' if self.events else ''}\n{_encoded(event)}")
        self.events += 1


def _at(track: Track) -> dict[str, int]:
    return {"pid": track.process, "tid": track.thread}


def _us(ns: int) -> float:
    return ns / 1000 if ns % 1000 else ns // 1000
