"""The course of a run -> who is suspected of what, how surely, since when, and which measures carried it.

Every participation gets a score an alarm. Four clocks watch the scores of a client: this participation, both of the
last two, and by how much the means of the last five and the last eight are above the mean of all before, which is how a
client that was always unlike the others differs from one that has become so. Each alarm is watched by those clocks that
find something with it; the threshold of the others is infinite. Thresholds were taken from the largest value over all
clients and rounds of runs without a fault, so that the number of comparisons is in them already. What rang the alarm is
then compared with the kinds of fault, and the likeliest gives the finding its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.evidence.course import FEATURES, WAYS, Course, course
from fedvitals.diagnose.evidence.forest import Scorers, load
from fedvitals.diagnose.evidence.measures import NAMES
from fedvitals.store.table import Bools, Floats, Ints
from fedvitals.vocabulary import Grade

RISES = (5, 8)  # participations that are held against all that came before them, of which there must be
LEAST = 3  # or more
CLOCKS = ("now", "two", *(f"rise{length}" for length in RISES))
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
    peaks = [
        _peak(chart, scorers, int(client), rows[owner == client], clocks[owner == client])
        for client in np.unique(owner[rung])
    ]
    names = zip(peaks, _kinds(scorers, found, peaks), _carriers(scorers, found, peaks), strict=True)
    return tuple(_suspicion(chart, peak, kind, carriers) for peak, kind, carriers in names)


@dataclass(frozen=True, slots=True, eq=False)
class _Peak:
    """Where a client's clocks are furthest above their thresholds."""

    client: int
    grade: Grade
    rows: Ints  # in which any clock rang
    row: int
    alarm: int
    score: float
    threshold: float


def watched(scores: Floats, client: Ints, attempt: Ints) -> Floats:
    """[rows, alarms, clocks]; -inf where a clock has not seen enough."""
    order = np.lexsort((attempt, client))
    values, place = scores[order], _place_in_run(client[order])
    sums = np.concatenate([np.zeros((1, scores.shape[1])), np.cumsum(values, axis=0)])
    out = np.full((*scores.shape, len(CLOCKS)), -np.inf)
    out[order, :, 0] = values
    again = np.flatnonzero(place >= 1)
    out[order[again], :, 1] = np.minimum(values[again], values[again - 1])
    for clock, length in enumerate(RISES, start=2):
        enough = np.flatnonzero(place >= length + LEAST - 1)
        before = place[enough] + 1 - length
        rise = _means(sums, enough, np.full(len(enough), length)) - _means(sums, enough - length, before)
        out[order[enough], :, clock] = rise
    return out


def _means(sums: Floats, last: Ints, length: Ints) -> Floats:
    """Of so many scores up to and with the last."""
    found: Floats = (sums[last + 1] - sums[last + 1 - length]) / length[:, None]
    return found


def _place_in_run(owner: Ints) -> Ints:
    """How many of the same owner come before each, of owners that stand together."""
    starts = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]])
    lengths = np.diff(np.r_[starts, len(owner)])
    return np.arange(len(owner)) - np.repeat(starts, lengths)


def _peak(chart: Chart, scorers: Scorers, client: int, rows: Ints, clocks: Floats) -> _Peak:
    order = np.argsort(chart.participations.attempt[rows])
    rows, clocks = rows[order], clocks[order]
    accused = bool((clocks >= scorers.accuse).any())
    limit = scorers.accuse if accused else scorers.suspect
    above = clocks - limit
    hit: Bools = np.asarray((above >= 0).any(axis=(1, 2)))
    peak, alarm, clock = (int(one) for one in np.unravel_index(int(above.argmax()), above.shape))
    grade = Grade.ACCUSED if accused else Grade.SUSPECT
    score, threshold = float(clocks[peak, alarm, clock]), float(limit[alarm, clock])
    return _Peak(client, grade, rows[hit], int(rows[peak]), alarm, score, threshold)


def _suspicion(chart: Chart, peak: _Peak, kind: str, carriers: tuple[str, ...]) -> Suspicion:
    return Suspicion(
        client=peak.client,
        kind=kind,
        grade=peak.grade,
        row=int(peak.rows[0]),
        rounds=tuple(sorted({int(one) for one in chart.participations.round[peak.rows]})),
        score=peak.score,
        threshold=peak.threshold,
        carriers=carriers,
    )


def _kinds(scorers: Scorers, found: Course, peaks: Sequence[_Peak]) -> list[str]:
    """What each looks like, over the rows in which it rang. One walk through the trees for all: a walk costs nearly
    the same for one row as for a thousand."""
    if not peaks:
        return []
    scores = scorers.naming.scores(found.features[np.concatenate([peak.rows for peak in peaks])])
    ends = np.cumsum([len(peak.rows) for peak in peaks])
    return [scorers.kinds[int(some.mean(axis=0).argmax())] for some in np.split(scores, ends[:-1])]


def _carriers(scorers: Scorers, found: Course, peaks: Sequence[_Peak]) -> list[tuple[str, ...]]:
    """Of each the measures whose absence lowers the score most."""
    if not peaks:
        return []
    without = np.repeat(found.features[[peak.row for peak in peaks]][:, None], len(NAMES) + 1, axis=1)
    for place, name in enumerate(NAMES):
        without[:, place, [FEATURES.index(f"{name}.{way}") for way in WAYS]] = np.nan
    scores = scorers.alarming.scores(without.reshape(-1, len(FEATURES))).reshape(*without.shape[:2], -1)
    return [_most(some[-1, peak.alarm] - some[:-1, peak.alarm]) for some, peak in zip(scores, peaks, strict=True)]


def _most(drops: Floats) -> tuple[str, ...]:
    order = np.argsort(-drops)[:MOST_CARRIERS]
    return tuple(NAMES[place] for place in order if drops[place] > 0)
