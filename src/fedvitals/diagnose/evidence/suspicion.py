"""The course of a run -> who is suspected of what, how surely, since when, and which measures carried it.

Every participation gets a score an alarm. Clocks watch the scores of a client: this participation, both of the last
two, the means of the last three and five, and by how much the mean of the last five is above that of all before,
which is how a client that was always unlike the others differs from one that has become so. Each alarm is watched by
those clocks that find something with it; the threshold of the others is infinite. Thresholds were taken from the
largest value over all clients and rounds of runs without a fault, so that the number of comparisons is in them
already, and are higher where clients are many and unlike each other: they answer whether anybody is bad in this run.
`limits` says how much less it takes where several stand high, and to be named beside somebody; who turned together with
others (`together`) needs no height of his own. What rang the alarm is then compared with the kinds of fault, and the
likeliest gives the finding its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.evidence.breaks import unlike_themselves
from fedvitals.diagnose.evidence.course import CONTEXT, FEATURES, WAYS, Course, course
from fedvitals.diagnose.evidence.endings import until_the_end
from fedvitals.diagnose.evidence.forest import Scorers, Thresholds, load
from fedvitals.diagnose.evidence.limits import ACCUSED, limits
from fedvitals.diagnose.evidence.measures import NAMES
from fedvitals.diagnose.evidence.steps import AFTER
from fedvitals.diagnose.evidence.together import Turn, turns
from fedvitals.store.table import Bools, Floats, Ints
from fedvitals.vocabulary import Grade

MEANS = (3, 5)  # participations
RISE = 5  # participations that are held against all that came before them, of which there must be
LEAST = 3  # or more
CLOCKS = ("now", "two", *(f"mean{length}" for length in MEANS), f"rise{RISE}")
MOST_CARRIERS = 3
COMPANY = 0.5  # how much what all look like weighs beside what one does
CONTEXT_COLUMNS = slice(len(FEATURES) - len(CONTEXT), len(FEATURES))


@dataclass(frozen=True, slots=True)
class Suspicion:
    """One client, suspected of one kind of fault."""

    client: int
    kind: str
    grade: Grade
    row: int  # the participation in which it was noticed first
    rounds: tuple[int, ...]  # in which it looked like that
    score: float  # how high it stands, on the scale of `limits`
    threshold: float  # the one that counts here
    carriers: tuple[str, ...]  # measures without which it would not be suspected, the strongest first
    turn: Turn | None = None  # what it was part of, where that is why it is named


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
    standing = heights(clocks, found.known[:, CONTEXT_COLUMNS], scorers.thresholds)
    turned = {client: one for one in reversed(chart.shared(turns)) for client in one.clients}
    accuse, suspect = limits(_with_breaks(chart, np.unique(owner), by_client(standing, owner)))
    peaks = []
    for client in np.unique(owner[(standing >= suspect).any(axis=(1, 2)) | np.isin(owner, [*turned])]):
        own = owner == client
        peaks.append(_peak(chart, int(client), rows[own], standing[own], (accuse, suspect), turned.get(int(client))))
    names = zip(peaks, _kinds(scorers, found, peaks), _carriers(scorers, found, peaks), strict=True)
    return tuple(_suspicion(chart, peak, kind, carriers) for peak, kind, carriers in names)


def heights(clocks: Floats, contexts: NDArray[np.floating], thresholds: Thresholds) -> Floats:
    """[rows, alarms, clocks]: at the levels SUSPECT and ACCUSE is the highest of a sound run at its two thresholds."""
    suspect, accuse = float(thresholds.levels[0]), float(thresholds.levels[1])
    usual: Floats = suspect + np.nan_to_num(contexts) @ thresholds.easing
    found: Floats = on_one_scale(clocks, thresholds.accuse, thresholds.suspect) - usual[:, None, None]
    found /= accuse - suspect
    return found


def on_one_scale(clocks: Floats, accuse: Floats, suspect: Floats) -> Floats:
    """0 where a clock is at its own threshold for suspects, 1 at the other; never of one that does not watch."""
    watching = np.isfinite(suspect)
    scale = np.where(watching, accuse - np.where(watching, suspect, 0.0), 1.0)
    return np.where(watching, (clocks - np.where(watching, suspect, 0.0)) / scale, -np.inf)


def by_client(standing: Floats, owner: Ints) -> Floats:
    """[clients]: how high each ever stood, from heights whose first axis is rows."""
    clients, place = np.unique(owner, return_inverse=True)
    found = np.full(len(clients), -np.inf)
    np.maximum.at(found, place, standing.reshape(len(owner), -1).max(axis=1))
    return found


def _with_breaks(chart: Chart, clients: Ints, highest: Floats) -> Floats:
    """Who broke with himself, or turned together with others, is accused for that: he counts as one, however high he
    stands."""
    groups = (one.clients for one in chart.shared(turns) if one.grade is Grade.ACCUSED)
    broke = np.isin(clients, [*chart.shared(unlike_themselves), *chain.from_iterable(groups)])
    return np.where(broke, np.fmax(highest, ACCUSED.alone), highest)


@dataclass(frozen=True, slots=True, eq=False)
class _Peak:
    """Where a client's clocks stand highest."""

    client: int
    grade: Grade
    rows: Ints  # in which any clock rang, or since it turned
    row: int
    alarm: int
    score: float
    threshold: float
    turn: Turn | None = None


def watched(scores: Floats, client: Ints, attempt: Ints) -> Floats:
    """[rows, alarms, clocks]; -inf where a clock has not seen enough."""
    order = np.lexsort((attempt, client))
    values, place = scores[order], _place_in_run(client[order])
    sums = np.concatenate([np.zeros((1, scores.shape[1])), np.cumsum(values, axis=0)])
    out = np.full((*scores.shape, len(CLOCKS)), -np.inf)
    out[order, :, 0] = values
    again = np.flatnonzero(place >= 1)
    out[order[again], :, 1] = np.minimum(values[again], values[again - 1])
    for clock, length in enumerate(MEANS, start=2):
        enough = np.flatnonzero(place >= length - 1)
        out[order[enough], :, clock] = _means(sums, enough, np.full(len(enough), length))
    enough = np.flatnonzero(place >= RISE + LEAST - 1)
    before = place[enough] + 1 - RISE
    rise = _means(sums, enough, np.full(len(enough), RISE)) - _means(sums, enough - RISE, before)
    out[order[enough], :, -1] = rise
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


def _peak(
    chart: Chart, client: int, rows: Ints, standing: Floats, limits: tuple[float, float], turn: Turn | None
) -> _Peak:
    order = np.argsort(chart.participations.attempt[rows])
    rows, standing = rows[order], standing[order]
    heights = standing.max(axis=(1, 2))
    accuse, suspect = limits
    grade = Grade.ACCUSED if (heights >= accuse).any() else Grade.SUSPECT
    limit = accuse if grade is Grade.ACCUSED else suspect
    hit: Bools = np.asarray(heights >= limit)
    peak = int(heights.argmax())
    alarm = int(standing[peak].max(axis=1).argmax())
    if turn is None or grade is Grade.ACCUSED or (turn.grade is Grade.SUSPECT and hit.any()):
        return _Peak(client, grade, rows[hit], int(rows[peak]), alarm, float(heights.max()), limit)
    place = int(np.flatnonzero(np.isin(rows, turn.rows))[0])
    since, last = rows[place : place + RISE], int(rows[place + AFTER - 1])
    return _Peak(client, turn.grade, since, last, alarm, float(heights.max()), limit, turn)


def _suspicion(chart: Chart, peak: _Peak, kind: str, carriers: tuple[str, ...]) -> Suspicion:
    found, told = chart.shared(course), peak.rows
    if peak.turn is None:
        own = found.measured[chart.participations.client[found.measured] == peak.client]
        told = until_the_end(found, np.sort(own), peak.rows, peak.row)
    return Suspicion(
        client=peak.client,
        kind=kind,
        grade=peak.grade,
        row=int(peak.rows[0]),
        rounds=tuple(sorted({int(one) for one in chart.participations.round[told]})),
        score=peak.score,
        threshold=peak.threshold,
        carriers=carriers,
        turn=peak.turn,
    )


def _kinds(scorers: Scorers, found: Course, peaks: Sequence[_Peak]) -> list[str]:
    """What each looks like, over the rows in which it rang, and a little what all of them do, since several who stand
    out in one run mostly share a cause. One walk through the trees for all: a walk costs nearly the same for one row as
    for a thousand."""
    if not peaks:
        return []
    scores = scorers.naming.scores(found.features[np.concatenate([peak.rows for peak in peaks])])
    ends = np.cumsum([len(peak.rows) for peak in peaks])
    own = np.array([some.mean(axis=0) for some in np.split(scores, ends[:-1])])
    return [scorers.kinds[int(place)] for place in (own + COMPANY * own.mean(axis=0)).argmax(axis=1)]


def _carriers(scorers: Scorers, found: Course, peaks: Sequence[_Peak]) -> list[tuple[str, ...]]:
    """Of each the measures whose absence lowers the score most, of those that it has."""
    if not peaks:
        return []
    without = np.repeat(found.features[[peak.row for peak in peaks]][:, None], len(NAMES) + 1, axis=1)
    for place, name in enumerate(NAMES):
        without[:, place, [FEATURES.index(f"{name}.{way}") for way in WAYS]] = np.nan
    scores = scorers.alarming.scores(without.reshape(-1, len(FEATURES))).reshape(*without.shape[:2], -1)
    drops = [some[-1, peak.alarm] - some[:-1, peak.alarm] for some, peak in zip(scores, peaks, strict=True)]
    known = np.isfinite(found.raw[[peak.row for peak in peaks]])
    return [_most(np.where(there, some, 0.0)) for some, there in zip(drops, known, strict=True)]


def _most(drops: Floats) -> tuple[str, ...]:
    order = np.argsort(-drops)[:MOST_CARRIERS]
    return tuple(NAMES[place] for place in order if drops[place] > 0)
