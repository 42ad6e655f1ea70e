"""Aggregation dominates.

Sees: rounds of which combining the updates takes more than half; and aggregation that takes at least a tenth of the
rounds and either ten times as long as earlier in this run, or twenty times as long as adding up so many bytes takes.

Matters: the clients wait while one process adds up numbers. It grows with the clients, so it limits how many there
can be.

Evidence: seconds of aggregation a round, its share of the round, and what it was before or should be.

False alarms: a single slow aggregation is none: at least three rounds, and most from the first such on, must be so. The
bytes are reckoned at 0.5 GB/s, far below what memory gives; costly robust rules (Krum on many clients) are rightly
found: it is where the time goes.

Do: profile the aggregation: one thread, copies to disk, a rule that is quadratic in the clients. Aggregate as updates
arrive.

Papers: none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.robust import median, threshold
from fedvitals.diagnose.rule import CannotSee, Sight, WrittenRule
from fedvitals.diagnose.trends import change
from fedvitals.diagnose.writing import seconds, share, times, write
from fedvitals.store.table import Floats, Ints
from fedvitals.vocabulary import Finding, Grade, Severity

MOST = 0.5  # what takes more than half dominates
MATTERS = 0.1  # less than a tenth of a round is not worth mending
LEAST_ROUNDS = 3
STEPPED_UP = 10.0
TOO_SLOW = 20.0
BYTES_PER_S = 0.5e9  # to add up in one thread, memory's speed many times over
LEAST_S = 0.01  # a fixed cost that nobody calls slow
NOTICED_S = 0.02  # a busy machine interrupts for about that long
RATE = 0.01


class Rounds(NamedTuple):
    """Rounds that ended and were aggregated."""

    number: Ints
    length: Floats
    took: Floats
    bytes: Floats


def _look(chart: Chart) -> Iterator[Finding]:
    rounds = _rounds(chart)
    if not len(rounds.number):
        raise CannotSee("no aggregation was timed")
    places = _dominated(rounds)
    how = ""
    if not len(places):
        places, how = _stepped_up(rounds)
    if not len(places):
        places, how = _too_slow(rounds)
    if len(places):
        yield _finding(rounds, places, how)


def _rounds(chart: Chart) -> Rounds:
    took: dict[int, float] = {}
    for span in chart.spans:
        if span.name == "aggregate" and span.round is not None and span.end_ns is not None:
            took[span.round] = took.get(span.round, 0.0) + (span.end_ns - span.start_ns) / 1e9
    table = chart.participations
    raw = np.nan_to_num(table.raw_bytes_up)
    sizes = {number: float(raw[rows].sum()) for number, rows in chart.cohorts}
    ended = [one for one in chart.rounds if one.end_ns is not None and one.number in took]
    return Rounds(
        np.array([one.number for one in ended], dtype=np.int64),
        np.array([((one.end_ns or 0) - one.start_ns) / 1e9 for one in ended]),
        np.array([took[one.number] for one in ended]),
        np.array([sizes.get(one.number, 0.0) for one in ended]),
    )


def _dominated(rounds: Rounds) -> Ints:
    over = rounds.took > MOST * rounds.length
    first = int(np.argmax(over)) if over.any() else 0
    enough = over.sum() >= LEAST_ROUNDS and over[first:].mean() > MOST
    return np.flatnonzero(over) if enough else np.array([], dtype=np.int64)


def _stepped_up(rounds: Rounds) -> tuple[Ints, str]:
    split = change(np.log(np.maximum(rounds.took, 1e-6)), LEAST_ROUNDS)
    nothing = np.array([], dtype=np.int64)
    if split is None or split.after - split.before < math.log(STEPPED_UP):
        return nothing, ""
    after = slice(split.place, None)
    if np.quantile(rounds.took[after], 0.1) <= np.quantile(rounds.took[: split.place], 0.9):
        return nothing, ""
    part = median(rounds.took[after] / np.maximum(rounds.length[after], 1e-12))
    if part < MATTERS or median(rounds.took[after]) < NOTICED_S or split.score < threshold(len(rounds.took), RATE):
        return nothing, ""
    return np.arange(split.place, len(rounds.took)), f"; it was {seconds(math.exp(split.before))} before"


def _too_slow(rounds: Rounds) -> tuple[Ints, str]:
    should = rounds.bytes / BYTES_PER_S + LEAST_S
    over = (rounds.took > TOO_SLOW * should) & (rounds.took > MATTERS * rounds.length) & (rounds.bytes > 0)
    if over.sum() < LEAST_ROUNDS or over.mean() <= MOST:
        return np.array([], dtype=np.int64), ""
    return np.flatnonzero(over), f"; adding up so many bytes takes {seconds(median(should))} or less"


def _finding(rounds: Rounds, places: Ints, how: str) -> Finding:
    took, length = rounds.took[places], rounds.length[places]
    part = float(took.sum() / length.sum()) if length.sum() > 0 else math.nan
    return write(
        RULE,
        Severity.WARNING,
        f"aggregation took {seconds(median(took))} a round, {share(part)} of {times(len(places), 'round')} from round "
        f"{int(rounds.number[places[0]])} on{how}",
        grade=Grade.ACCUSED if how else Grade.CERTAIN,
        rounds=rounds.number[places].tolist(),
        evidence={"seconds": median(took), "share": part, "rounds": len(places)},
        next=["fedvitals show RUN"],
    )


RULE = WrittenRule(
    code="FL203",
    name="aggregation dominates",
    page=__doc__ or "",
    look=_look,
    needs=frozenset({Sight.ROUND_PHASES}),
    explains=frozenset({"FL202", "FL205"}),
)
