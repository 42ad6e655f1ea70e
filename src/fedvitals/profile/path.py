"""The critical path: for each instant of the run the one thing that the run was waiting for.

The server's own phases first. In the time between them clients work: walking back from its end, the client that ended
last was waited for; before it began, whoever ended just then made way for it; and so on. A batch of clients is one.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np

from fedvitals.profile.timeline import Stretch, Timeline, Works, overlapping
from fedvitals.store.table import Ints

UNEXPLAINED = "unexplained"
MADE_WAY_NS = 1_000_000  # who ended so shortly before another began has made way for it
NO_WORK = -1


class Piece(NamedTuple):
    """A part of the path: some of a client's work, or a phase of the server."""

    start_ns: int
    end_ns: int
    work: int = NO_WORK  # counts into the timeline's works
    phase: str = ""  # of the server; empty where it is a client's work


@dataclass(frozen=True, slots=True, eq=False)
class Path:
    """From the run's start to its end, without a hole, cut where rounds begin and end."""

    pieces: tuple[Piece, ...]
    start_ns: Ints
    end_ns: Ints
    work: Ints

    @staticmethod
    def of(pieces: Sequence[Piece]) -> Path:
        starts, ends, works = (np.array([one[place] for one in pieces], dtype=np.int64) for place in range(3))
        return Path(tuple(pieces), starts, ends, works)


def critical_path(timeline: Timeline) -> Path:
    """`unexplained` stands where nothing is known to have gone on."""
    found: list[Piece] = []
    edge = 0
    for one in chain(timeline.server, [Stretch(timeline.end_ns, timeline.end_ns, UNEXPLAINED)]):
        start, end = min(one.start_ns, timeline.end_ns), min(one.end_ns, timeline.end_ns)
        if start > edge:
            found += _between(timeline, edge, start)
        if end > max(start, edge):
            found.append(Piece(max(start, edge), end, phase=one.phase))
        edge = max(edge, end)
    edges = sorted({edge for one in timeline.rounds for edge in (one.start_ns, one.end_ns or 0)})
    return Path.of([part for one in found for part in _cut(one, edges)])


def _cut(piece: Piece, edges: Sequence[int]) -> Iterator[Piece]:
    place = bisect_right(edges, piece.start_ns)
    start = piece.start_ns
    while place < len(edges) and edges[place] < piece.end_ns:
        yield piece._replace(start_ns=start, end_ns=edges[place])
        start, place = edges[place], place + 1
    yield piece._replace(start_ns=start)


def _between(timeline: Timeline, start: int, end: int) -> list[Piece]:
    """The clients' work in a time in which the server did nothing of its own, and what is left over."""
    works = timeline.works
    rows = np.flatnonzero((works.start_ns < end) & (works.end_ns > start))
    found: list[Piece] = []
    edge = start
    for piece in reversed(list(_walk_back(works, rows, start, end))):
        found += _idle(timeline, edge, piece.start_ns)
        found.append(piece)
        edge = piece.end_ns
    return found + _idle(timeline, edge, end) if edge < end else found


def _walk_back(works: Works, rows: Ints, start: int, end: int) -> Iterator[Piece]:
    """Work on the path, the last first."""
    ended = rows[np.argsort(works.end_ns[rows], kind="stable")].tolist()
    starts = dict(zip(rows.tolist(), works.start_ns[rows].tolist(), strict=True))
    ends = dict(zip(rows.tolist(), works.end_ns[rows].tolist(), strict=True))
    going_on: list[tuple[int, int]] = []  # by start; some may not have begun at the instant, which only goes back
    instant = end
    while instant > start:
        while ended and (ends[ended[-1]] > instant or starts[ended[-1]] >= instant):
            row = ended.pop()
            if starts[row] < instant:
                heapq.heappush(going_on, (starts[row], row))
        made_way = bool(ended) and instant - ends[ended[-1]] <= MADE_WAY_NS
        if not made_way and going_on and going_on[0][0] < instant:
            row, stop = going_on[0][1], instant
        elif ended:
            row = ended.pop()
            stop = ends[row]
        else:
            return
        begins = max(starts[row], start)
        if begins < stop:
            yield Piece(begins, stop, row)
        instant = min(begins, stop)


def _idle(timeline: Timeline, start: int, end: int) -> list[Piece]:
    """A time in which no client worked: what the server said it did, or nothing known."""
    if start >= end:
        return []
    found: list[Piece] = []
    edge = start
    for one in overlapping(timeline.soft, start, end):
        if one.start_ns > edge:
            found.append(Piece(edge, one.start_ns, phase=UNEXPLAINED))
        found.append(Piece(one.start_ns, one.end_ns, phase=one.phase))
        edge = one.end_ns
    return [*found, Piece(edge, end, phase=UNEXPLAINED)] if edge < end else found
