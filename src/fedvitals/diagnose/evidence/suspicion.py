"""The course of a run -> who is suspected of what, how surely, since when, and which measures carried it.

Every participation gets a score an alarm. Three clocks watch the scores of a client: this participation, both of the
last two, and the mean of the last five. Each clock's threshold was taken from the largest value over all clients and
rounds of runs without a fault, so that the number of comparisons is in it already. What rang the alarm is then compared
with the kinds of fault, and the likeliest gives the finding its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from fedvitals.diagnose.chart import Chart, Singles
from fedvitals.diagnose.evidence.course import FEATURES, WAYS, Course, course
from fedvitals.diagnose.evidence.forest import Scorers, load
from fedvitals.diagnose.evidence.measures import NAMES
from fedvitals.store.table import Bools, Floats, Ints
from fedvitals.vocabulary import Grade

CLOCKS = 3
LONGEST = 5  # participations that the slowest clock looks at, and
LEAST = 3  # the fewest it needs
MOST_CARRIERS = 3


@dataclass(frozen=True, slots=True)
class Suspicion:
    """One client, suspected of one kind of fault."""

    client: int
    kind: str
    grade: Grade
    row: int  # the participation in which it was noticed first
    rounds: tuple[int, ...]  # in which it looked like that
    score: float
    threshold: float
    carriers: tuple[str, ...]  # measures without which it would not be suspected, the strongest first


@cache
def shipped() -> Scorers:
    return load()


def suspicions(chart: Chart) -> tuple[Suspicion, ...]:
    """At most one a client: the kind that is furthest above its threshold. Ask through `chart.shared(suspicions)`."""
    found, scorers = chart.shared(course), shipped()
    rows = found.measured
    if not len(rows):
        return ()
    table = chart.participations
    owner = table.client[rows]
    clocks = watched(scorers.alarming.scores(found.known), owner, table.attempt[rows])
    rung = (clocks >= scorers.suspect).any(axis=(1, 2))
    return tuple(
        _suspicion(chart, found, scorers, int(client), rows[owner == client], clocks[owner == client])
        for client in np.unique(owner[rung])
    )


def watched(scores: Floats, client: Ints, attempt: Ints) -> Floats:
    """[rows, alarms, CLOCKS]; -inf where a clock has not seen enough."""
    order = np.lexsort((attempt, client))
    values, owner = scores[order], client[order]
    out = np.full((*scores.shape, CLOCKS), -np.inf)
    place = _place_in_run(owner)
    out[order, :, 0] = values
    again = place >= 1
    out[order[again], :, 1] = np.minimum(values[again], values[np.flatnonzero(again) - 1])
    sums = np.concatenate([np.zeros((1, scores.shape[1])), np.cumsum(values, axis=0)])
    enough = np.flatnonzero(place >= LEAST - 1)
    length = np.minimum(place[enough] + 1, LONGEST)
    out[order[enough], :, 2] = (sums[enough + 1] - sums[enough + 1 - length]) / length[:, None]
    return out


def _place_in_run(owner: Ints) -> Ints:
    """How many of the same owner come before each, of owners that stand together."""
    starts = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]])
    lengths = np.diff(np.r_[starts, len(owner)])
    return np.arange(len(owner)) - np.repeat(starts, lengths)


def _suspicion(chart: Chart, found: Course, scorers: Scorers, client: int, rows: Ints, clocks: Floats) -> Suspicion:
    order = np.argsort(chart.participations.attempt[rows])
    rows, clocks = rows[order], clocks[order]
    accused = bool((clocks >= scorers.accuse).any())
    limit = scorers.accuse if accused else scorers.suspect
    above = clocks - limit
    hit: Bools = np.asarray((above >= 0).any(axis=(1, 2)))
    peak, alarm, clock = np.unravel_index(int(above.argmax()), above.shape)
    kinds = scorers.naming.scores(found.features[rows[hit]]).mean(axis=0)
    return Suspicion(
        client=client,
        kind=scorers.kinds[int(kinds.argmax())],
        grade=Grade.ACCUSED if accused else Grade.SUSPECT,
        row=int(rows[hit][0]),
        rounds=tuple(sorted({int(one) for one in chart.participations.round[rows[hit]]})),
        score=float(clocks[peak, alarm, clock]),
        threshold=float(limit[alarm, clock]),
        carriers=_carriers(scorers, found.features[rows[peak]], int(alarm)),
    )


def _carriers(scorers: Scorers, features: Singles, alarm: int) -> tuple[str, ...]:
    """The measures whose absence lowers the score most."""
    without = np.repeat(features[None], len(NAMES) + 1, axis=0)
    for place, name in enumerate(NAMES):
        without[place, [FEATURES.index(f"{name}.{way}") for way in WAYS]] = np.nan
    scores = scorers.alarming.scores(without)[:, alarm]
    drops = scores[-1] - scores[:-1]
    order = np.argsort(-drops)[:MOST_CARRIERS]
    return tuple(NAMES[place] for place in order if drops[place] > 0)
