"""Tracks of a trace: a line for each client and each thread of the server, and more where things overlap.

What stands on one line has to lie inside or beside what else stands there. Two attempts of one client that overlap, or
spans that cross, get a further line of the same name.
"""

from __future__ import annotations

from fedvitals.export.trace_events import TraceWriter, Track

MOST_LINES = 64  # of one name: what would need more is left out, and counted
EXTRA = 1_000_000  # further lines are numbered from here on


class _Line:
    """What is going on at one line, the innermost last."""

    def __init__(self, track: Track) -> None:
        self.track = track
        self._ends: list[int] = []
        self._instant = 0

    def takes(self, start_ns: int, end_ns: int) -> bool:
        """Whether it lies inside or beside what came before; if so it is now there."""
        if start_ns < self._instant:
            return False
        while self._ends and self._ends[-1] <= start_ns:
            self._ends.pop()
        if self._ends and end_ns > self._ends[-1]:
            return False
        self._ends.append(end_ns)
        self._instant = start_ns
        return True


class Tracks:
    """Finds a line for each thing that took time, and names the lines as they appear."""

    def __init__(self, writer: TraceWriter) -> None:
        self._writer = writer
        self._lines: dict[tuple[int, str], list[_Line]] = {}
        self._extra = EXTRA
        self._places: dict[int, int] = {}  # lines so far, by process
        self.left_out = 0

    def first(self, process: int, key: str, label: str) -> Track:
        """The main line of this key."""
        lines = self._lines.get((process, key))
        if lines is None:
            place = self._places[process] = self._places.get(process, 0) + 1
            lines = self._lines[process, key] = [self._named(Track(process, place), label, place)]
        return lines[0].track

    def place(self, process: int, key: str, label: str, start_ns: int, end_ns: int) -> Track | None:
        """The line that this goes on; None where there are too many already."""
        first = self.first(process, key, label)
        lines = self._lines[process, key]
        for line in lines:
            if line.takes(start_ns, end_ns):
                return line.track
        if len(lines) >= MOST_LINES:
            self.left_out += 1
            return None
        self._extra += 1
        line = self._named(Track(process, self._extra), f"{label} ({len(lines) + 1})", first.thread)
        lines.append(line)
        line.takes(start_ns, end_ns)
        return line.track

    def _named(self, track: Track, label: str, place: int) -> _Line:
        self._writer.name_thread(track, label, place)
        return _Line(track)
