"""What is missing from a run's records or does not fit among them: said in sentences, and made harmless.

The times are clients' own words and clocks: they are taken for what they can be, and no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from fedvitals.diagnose.writing import times
from fedvitals.store.table import Bools, ParticipationTable
from fedvitals.vocabulary import PHASES, Outcome, Round, Run, Span

MOST_S = 1e9  # some thirty years: no phase takes that long


def believed(table: ParticipationTable, end_ns: int) -> ParticipationTable:
    """Without times that cannot be, and inside of the run; who was late may end after it."""
    phases = np.where(_impossible(table), np.nan, table.phases_s)
    outside = _outside(table, end_ns)
    start = np.where(outside, np.clip(table.start_ns, 0, end_ns), table.start_ns)
    end = np.where(outside, np.clip(table.end_ns, 0, end_ns), table.end_ns)
    return replace(table, phases_s=phases, start_ns=start, end_ns=end)


def oddities(
    run: Run, rounds: Sequence[Round], table: ParticipationTable, spans: Sequence[Span], end_ns: int
) -> tuple[str, ...]:
    """Each in a sentence."""
    if not rounds and not len(table):
        return ("no round and no client was recorded: there is nothing to profile",)
    still = (
        [] if run.ended_ns is not None else ["the run has not ended, or was cut off: it counts until its last record"]
    )
    return (
        *still,
        *_missing(rounds, table, spans),
        *_unfitting(rounds, table, spans, end_ns),
        *_unanswered(rounds, table),
    )


def _missing(rounds: Sequence[Round], table: ParticipationTable, spans: Sequence[Span]) -> Iterable[str]:
    if not len(table):
        yield "no client was recorded: only the server's phases are known"
    if not rounds:
        yield "no rounds were recorded: the whole run counts as one"
    if len(table) and np.isnan(table.phases_s).all() and not any(span.client for span in spans):
        yield "no phases of clients were recorded: their time counts as training (c.batches and c.phase tell more)"
    if not any(span.client is None and span.name in PHASES for span in spans):
        yield 'no phases of the server were recorded: `with rnd.phase("aggregate")` tells how long it aggregates'


def _unfitting(rounds: Sequence[Round], table: ParticipationTable, spans: Sequence[Span], end_ns: int) -> Iterable[str]:
    open_spans = sum(span.end_ns is None for span in spans)
    if open_spans:
        yield f"{times(open_spans, 'span')} never ended; each counts until its round did"
    crossing = _crossing([span for span in spans if span.client is None and span.name in PHASES])
    if crossing:
        yield f"{times(crossing, 'phase')} of the server began in another and outlasted it; there the later one counts"
    stretches = [*((o.start_ns, o.end_ns) for o in rounds), *((o.start_ns, o.end_ns) for o in spans)]
    ended = [(start, end) for start, end in stretches if end is not None]
    back = int(np.sum(table.end_ns < table.start_ns)) + sum(end < start for start, end in ended)
    if back:
        yield f"a clock went back {times(back)}; those stretches count as nothing"
    outside = int(np.sum(_outside(table, end_ns)))
    if outside:
        yield f"outside of the run, by their own clocks: {times(outside, 'participation')}, cut to it"
    beyond = sum(start < 0 or end > end_ns for start, end in ended)
    if beyond:
        yield f"rounds or phases outside of the run: {beyond:,}, cut to it"
    impossible = int(np.sum(_impossible(table)))
    if impossible:
        yield f"times that cannot be (below 0, or of decades) were told of phases: {times(impossible)}; not counted"
    still = sum(one.start_ns == one.end_ns for one in rounds)
    if still:
        yield f"{times(still, 'round')} took no time at all"


def _unanswered(rounds: Sequence[Round], table: ParticipationTable) -> Iterable[str]:
    lost = int(np.sum(table.outcome == Outcome.DROPPED))
    if lost:
        yield f"{times(lost, 'participation')} never came back"
    unheard = _unheard(rounds, table)
    if unheard:
        yield f"clients were asked {times(unheard)} of whom nothing at all is known: not when, nor for how long"


def _impossible(table: ParticipationTable) -> Bools:
    """NaN is no time that cannot be: it was not told."""
    found: Bools = (table.phases_s < 0) | (table.phases_s > MOST_S)
    return found


def _outside(table: ParticipationTable, end_ns: int) -> Bools:
    """A run need not wait for who is late."""
    found: Bools = (table.start_ns < 0) | ((table.end_ns > end_ns) & (table.outcome != Outcome.LATE))
    return found


def _crossing(spans: Iterable[Span]) -> int:
    """Of spans that are neither apart nor one in the other; as far as neighbours in time tell."""
    closed = sorted((span.start_ns, -span.end_ns) for span in spans if span.end_ns is not None)
    return sum(one[0] < other[0] < -one[1] < -other[1] for one, other in pairwise(closed))


def in_rounds(table: ParticipationTable) -> bool:
    """Whether updates are used in the round that asked for them; else who is asked in one is recorded in another."""
    return not (table.staleness > 0).any()


def _unheard(rounds: Sequence[Round], table: ParticipationTable) -> int:
    """How often more clients were asked in a round that is over than are recorded."""
    if not in_rounds(table):
        return 0
    numbers, counts = np.unique(table.round, return_counts=True)
    recorded = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
    return sum(max(one.selected - recorded.get(one.number, 0), 0) for one in rounds if one.end_ns is not None)
