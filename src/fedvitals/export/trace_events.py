"""The Trace Event Format, which Perfetto and chrome://tracing open: events as JSON objects, written one by one.

Instants and lengths are in microseconds there; with three places they keep our nanoseconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
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
        length = f'"ts":{_us(start_ns)},"dur":{_us(end_ns - start_ns)}'
        self._put(f'"ph":"X","name":{_text(name)},"cat":{_text(kind)},{length},{_at(track)},"args":{_object(args)}')

    def instant(self, track: Track, name: str, at_ns: int, kind: str, args: Args) -> None:
        """Something that happened."""
        what = f'"ph":"i","s":"t","name":{_text(name)},"cat":{_text(kind)}'
        self._put(f'{what},"ts":{_us(at_ns)},{_at(track)},"args":{_object(args)}')

    def counter(self, process: int, name: str, at_ns: int, values: Mapping[str, float]) -> None:
        """Numbers from this instant on."""
        where = _at(Track(process, 0))
        self._put(f'"ph":"C","name":{_text(name)},"ts":{_us(at_ns)},{where},"args":{_object(values)}')

    def flow(self, name: str, number: int, start: tuple[Track, int], end: tuple[Track, int]) -> None:
        """An arrow from what goes on at an instant of one track to what goes on at one of another."""
        same = f'"name":{_text(name)},"cat":"flow","id":{number}'
        self._put(f'"ph":"s",{same},"ts":{_us(start[1])},{_at(start[0])}')
        self._put(f'"ph":"f","bp":"e",{same},"ts":{_us(end[1])},{_at(end[0])}')

    def name_process(self, process: int, name: str) -> None:
        """Those with lower numbers stand higher."""
        self._about("process", Track(process, 0), name, process)

    def name_thread(self, track: Track, name: str, place: int) -> None:
        """`place` says where among its neighbours it stands."""
        self._about("thread", track, name, place)

    def _about(self, what: str, track: Track, name: str, place: int) -> None:
        for kind, value in ((f"{what}_name", {"name": name}), (f"{what}_sort_index", {"sort_index": place})):
            self._put(f'"ph":"M","name":{_text(kind)},{_at(track)},"ts":0,"args":{_object(value)}')

    def _put(self, fields: str) -> None:
        """One event. Its fields are put together as text: there are millions, and an encoder takes twice as long."""
        self._file.write(f"{',' if self.events else ''}\n{{{fields}}}")
        self.events += 1


@lru_cache(maxsize=4096)
def _text(words: str) -> str:
    return json.dumps(words)


def _object(args: Args) -> str:
    return _encoded(args) if args else "{}"


def _at(track: Track) -> str:
    return f'"pid":{track.process},"tid":{track.thread}'


def _us(ns: int) -> str:
    whole, rest = divmod(ns, 1000)
    return f"{whole}.{rest:03}" if rest else str(whole)
