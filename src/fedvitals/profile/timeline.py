"""A run in the store -> what was going on at each instant: the server's spans and the clients' stretches of work.

Everything is in nanoseconds since the run's start. What does not fit (a span that never ended, a clock that jumped) is
brought inside the run, and said in `notes`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fedvitals.profile.oddities import believed, oddities
from fedvitals.store.protocol import RunReader
from fedvitals.store.table import Bools, Floats, Ints, ParticipationTable, read_table
from fedvitals.vocabulary import CLIENT_PHASES, PHASES, Outcome, Round, Run, Span

NOBODY = -1
SOFT = ("wait", "other", "encode", "decode")  # of a server: where clients work at the same time, it is the clients'
_TRAIN = CLIENT_PHASES.index("train")


class Stretch(NamedTuple):
    """One thing that went on for some time. `client` counts into the timeline's clients; NOBODY is the server."""

    start_ns: int
    end_ns: int
    phase: str
    client: int = NOBODY


@dataclass(frozen=True, slots=True, eq=False)
class Works:
    """Stretches of clients' work, one a participation; those trained as one batch are one, and nobody's."""

    start_ns: Ints
    end_ns: Ints
    client: Ints
    attempt: Ints
    round: Ints
    phases_s: Floats  # [works, CLIENT_PHASES], as told; what was told of no time is 0
    timed: Bools  # its training was timed; of the others what no phase explains counts as training
    finished: Bools

    def __len__(self) -> int:
        return len(self.start_ns)

    @staticmethod
    def of(table: ParticipationTable, end_ns: int) -> Works:
        """Of all participations, cut to the run."""
        start = np.clip(table.start_ns, 0, end_ns)
        end = np.clip(np.maximum(table.end_ns, table.start_ns), 0, end_ns)
        phases = np.clip(np.nan_to_num(table.phases_s, posinf=0.0), 0.0, end_ns / 1e9)
        timed = ~np.isnan(table.phases_s[:, _TRAIN])
        done = np.isin(table.outcome, (Outcome.USED, Outcome.LATE, Outcome.REJECTED))
        alone = np.flatnonzero(~table.attributed)
        batched, places = _batches(table, start)
        rows = np.concatenate([alone, batched[places]])
        shared = np.add.reduceat(phases[batched], places, axis=0) if len(places) else phases[:0]
        last = np.maximum.reduceat(end[batched], places) if len(places) else end[:0]  # a slow device may end later
        return Works(
            start_ns=start[rows],
            end_ns=np.concatenate([end[alone], last]),
            client=np.concatenate([table.client[alone], np.full(len(places), NOBODY)]),
            attempt=table.attempt[rows],
            round=table.round[rows],
            phases_s=np.concatenate([phases[alone], shared]),
            timed=timed[rows],
            finished=done[rows],
        )


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """One run."""

    run: Run
    clients: tuple[str, ...]
    rounds: tuple[Round, ...]  # each with an end
    participations: ParticipationTable
    works: Works
    server: tuple[Stretch, ...]  # apart from each other, in order
    soft: tuple[Stretch, ...]  # likewise; where a client works the time is the client's
    own: Mapping[tuple[int, int], tuple[Stretch, ...]]  # a client's spans, by client and attempt; likewise
    end_ns: int
    notes: tuple[str, ...] = ()
    server_spans: tuple[Span, ...] = ()  # as they were recorded

    def name(self, client: int) -> str | None:
        return None if client == NOBODY else self.clients[client]


def read_timeline(reader: RunReader) -> Timeline:
    """The run as it is now."""
    clients, table = read_table(reader)
    return timeline_of(reader.run(), reader.rounds(), clients, table, reader.spans())


def timeline_of(
    run: Run, rounds: Sequence[Round], clients: tuple[str, ...], table: ParticipationTable, spans: Sequence[Span]
) -> Timeline:
    """Of a whole run's records, or of one round's."""
    end_ns = _end(run, rounds, table, spans)
    notes = oddities(run, rounds, table, spans, end_ns)
    table = believed(table, end_ns)
    ended = _ended(rounds, end_ns)
    closed = [_closed(span, ended, end_ns) for span in spans]
    server = [span for span in closed if span.client is None]
    phases = flattened(_stretch(span) for span in server if span.name in PHASES)
    others = [span for span in server if span.name not in PHASES]
    away = _rounds_apart(ended, table)
    return Timeline(
        run=run,
        clients=clients,
        rounds=ended,
        participations=table,
        works=Works.of(table, end_ns),
        server=tuple(one for one in phases if one.phase not in SOFT),
        soft=_soft([one for one in phases if one.phase in SOFT], flattened(map(_stretch, others)), away),
        own=_Own(closed, clients),
        end_ns=end_ns,
        notes=notes,
        server_spans=tuple(span for span in spans if span.client is None),
    )


def _end(run: Run, rounds: Sequence[Round], table: ParticipationTable, spans: Sequence[Span]) -> int:
    """When the run ended; of one that goes on or was cut off, the last instant that anything tells of."""
    if run.ended_ns is not None:
        return max(run.ended_ns, 0)
    told = [0, *(one.end_ns or one.start_ns for one in rounds), *(span.end_ns or span.start_ns for span in spans)]
    return int(max(max(told), int(table.end_ns.max(initial=0))))


def _ended(rounds: Sequence[Round], end_ns: int) -> tuple[Round, ...]:
    """In order, inside the run; one that never ended lasts until the next began."""
    found = []
    ordered = sorted(rounds, key=lambda one: one.start_ns)
    for place, one in enumerate(ordered):
        following = ordered[place + 1].start_ns if place + 1 < len(ordered) else end_ns
        last = following if one.end_ns is None else one.end_ns
        start = min(max(one.start_ns, 0), end_ns)
        found.append(one._replace(start_ns=start, end_ns=max(min(last, end_ns), start)))
    return tuple(found)


def _closed(span: Span, rounds: Sequence[Round], end_ns: int) -> Span:
    if span.end_ns is not None:
        return span
    lasts = [one.end_ns for one in rounds if one.number == span.round and one.end_ns is not None]
    return span._replace(end_ns=max([*lasts, span.start_ns]) if lasts else end_ns)


def _stretch(span: Span, client: int = NOBODY) -> Stretch:
    phase = span.name if span.name in PHASES else "other"
    start = max(span.start_ns, 0)
    return Stretch(start, max(span.end_ns or start, start), phase, client)


def flattened(stretches: Iterable[Stretch]) -> tuple[Stretch, ...]:
    """So that each instant has one: of those that overlap the one that began last, which is the innermost."""
    waiting = sorted(
        (one for one in stretches if one.end_ns > one.start_ns), key=lambda one: (one.start_ns, -one.end_ns)
    )
    if all(one.end_ns <= following.start_ns for one, following in pairwise(waiting)):
        return tuple(waiting)
    found: list[Stretch] = []
    stack: list[Stretch] = []
    instant = 0
    for one in [*waiting, None]:
        until = one.start_ns if one is not None else max((s.end_ns for s in stack), default=0)
        while stack and instant < until:
            top = stack[-1]
            if top.end_ns <= instant:
                stack.pop()
                continue
            stop = min(top.end_ns, until)
            found.append(top._replace(start_ns=max(instant, top.start_ns), end_ns=stop))
            instant = stop
        if one is not None:
            instant = one.start_ns
            stack.append(one)
    return tuple(found)


def _soft(*layers: Sequence[Stretch]) -> tuple[Stretch, ...]:
    """All that a server told of or was waiting for; each layer only in the time that those before it leave."""
    found: list[Stretch] = []
    for layer in layers:
        edges = [
            0,
            *(edge for one in found for edge in (one.start_ns, one.end_ns)),
            max([0, *(o.end_ns for o in layer)]),
        ]
        between = zip(edges[::2], edges[1::2], strict=True)
        found = sorted([*found, *(part for start, end in between for part in overlapping(layer, start, end))])
    return tuple(found)


def _rounds_apart(rounds: Sequence[Round], table: ParticipationTable) -> list[Stretch]:
    """Rounds whose clients were elsewhere: while none of them works, messages are on their way; the server waits."""
    remote = set(table.round[table.executor == "remote"].tolist())
    return list(flattened(Stretch(o.start_ns, o.end_ns or 0, "wait") for o in rounds if o.number in remote))


def overlapping(stretches: Sequence[Stretch], start: int, end: int) -> Iterator[Stretch]:
    """Those parts of stretches, which are in order and apart, that lie between."""
    first = bisect_right(stretches, start, key=lambda one: one.end_ns)
    for place in range(first, len(stretches)):
        one = stretches[place]
        if max(one.start_ns, start) >= end:  # also where there is nothing between
            return
        yield one._replace(start_ns=max(one.start_ns, start), end_ns=min(one.end_ns, end))


class _Own(Mapping[tuple[int, int], tuple[Stretch, ...]]):
    """Clients' spans as stretches, made when they are asked for: of hundreds of thousands few ever are."""

    def __init__(self, spans: Iterable[Span], clients: Sequence[str]) -> None:
        number = {name: place for place, name in enumerate(clients)}
        self._spans: dict[tuple[int, int], list[Span]] = defaultdict(list)
        for span in spans:
            if span.client in number and span.attempt is not None and span.name in PHASES:
                self._spans[number[span.client], span.attempt].append(span)

    def __getitem__(self, key: tuple[int, int]) -> tuple[Stretch, ...]:
        if key not in self._spans:
            raise KeyError(key)
        return flattened(_stretch(span, key[0]) for span in self._spans[key])

    def __contains__(self, key: object) -> bool:
        return key in self._spans

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._spans)

    def __len__(self) -> int:
        return len(self._spans)


def _batches(table: ParticipationTable, start: Ints) -> tuple[Ints, Ints]:
    """The rows of all batches, those of one beside each other, and where each begins among them. One batch is all that
    has the same round, number and times."""
    rows = np.flatnonzero(table.attributed)
    if not len(rows):
        return rows, rows
    keys = np.stack([table.round[rows], table.chunk[rows], start[rows]])
    order = np.lexsort(keys)
    changes = np.flatnonzero((np.diff(keys[:, order], axis=1) != 0).any(axis=0)) + 1
    return rows[order], np.concatenate([[0], changes])
