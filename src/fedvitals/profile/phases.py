"""How a client's work divides into phases, one after the other.

Spans say when a phase was. Of the others only the sum is known (a loader's time is counted batch by batch): they are
laid, in the order in which they usually come, into the time that the spans leave. What is told to be longer than the
time there was is shortened; what nothing explains is `unexplained`, or training where no training was timed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fedvitals.profile.path import UNEXPLAINED, Path
from fedvitals.profile.timeline import Stretch, Timeline, Works, overlapping
from fedvitals.store.table import Floats, Ints
from fedvitals.vocabulary import CLIENT_PHASES, PHASES

ALL = (*PHASES, UNEXPLAINED)
USUAL = ("download", "decode", "load", "train", "evaluate", "encode", "upload", "other", "wait")
_ORDER = [CLIENT_PHASES.index(phase) for phase in USUAL]
_COLUMNS = [ALL.index(phase) for phase in (*USUAL, UNEXPLAINED)]
_TRAIN = USUAL.index("train")


def path_phases(timeline: Timeline, path: Path) -> Floats:
    """Seconds of each piece of the path in each of ALL phases: its rows add up to the pieces' lengths."""
    found = np.zeros((len(path.pieces), len(ALL)))
    working = np.flatnonzero(path.work >= 0)
    for place, piece in enumerate(path.pieces):
        if piece.work < 0:
            found[place, ALL.index(piece.phase)] = (piece.end_ns - piece.start_ns) / 1e9
    spanned = _with_spans(timeline, path.work[working])
    plain = working[~spanned]
    found[np.ix_(plain, _COLUMNS)] = _plain(timeline.works, path, plain) / 1e9
    for place in working[spanned]:
        piece = path.pieces[place]
        for one in overlapping(phases_of(timeline, piece.work), piece.start_ns, piece.end_ns):
            found[place, ALL.index(one.phase)] += (one.end_ns - one.start_ns) / 1e9
    return found


def clients_phases(timeline: Timeline) -> Floats:
    """[works, ALL phases]: seconds of each client's own work, whether it is on the path or not."""
    works = timeline.works
    found = np.zeros((len(works), len(ALL)))
    found[:, _COLUMNS] = _plain_lengths(works, np.arange(len(works))) / 1e9
    return found


def _with_spans(timeline: Timeline, rows: Ints) -> np.ndarray:
    works, own = timeline.works, timeline.own
    if not own:
        return np.zeros(len(rows), dtype=bool)
    keys = zip(works.client[rows].tolist(), works.attempt[rows].tolist(), strict=True)
    return np.array([key in own for key in keys], dtype=bool)


def _plain(works: Works, path: Path, places: Ints) -> Floats:
    """Nanoseconds of these pieces in the USUAL phases and unexplained, where a client made no spans."""
    rows = path.work[places]
    start, lengths = works.start_ns[rows], _plain_lengths(works, rows)
    ends = np.cumsum(lengths, axis=1)
    begins = ends - lengths
    low, high = (path.start_ns[places] - start)[:, None], (path.end_ns[places] - start)[:, None]
    inside: Floats = np.maximum(np.minimum(ends, high) - np.maximum(begins, low), 0.0)
    missing = (high - low)[:, 0] - inside.sum(axis=1)  # what rounding to whole nanoseconds has lost
    inside[:, -1] += np.maximum(missing, 0.0)
    return inside


def _plain_lengths(works: Works, rows: Ints) -> Floats:
    room = works.end_ns[rows] - works.start_ns[rows]
    return _lengths(works.phases_s[rows] * 1e9, room, works.timed[rows] | ~works.finished[rows])


def _lengths(told: Floats, room: Ints, timed: np.ndarray) -> Floats:
    """[works, USUAL and unexplained]: nanoseconds that fill the room."""
    phases = told[:, _ORDER]
    total = phases.sum(axis=1)
    phases = phases * np.where(total > room, room / np.maximum(total, 1e-9), 1.0)[:, None]
    rest = np.maximum(room - phases.sum(axis=1), 0.0)
    phases[:, _TRAIN] += np.where(timed, 0.0, rest)
    return np.concatenate([phases, np.where(timed, rest, 0.0)[:, None]], axis=1)


def phases_of_all(timeline: Timeline) -> list[list[Stretch]]:
    """What `phases_of` tells of each work, at a tenth of its time for those that made no spans."""
    works = timeline.works
    rows = np.arange(len(works))
    spanned = _with_spans(timeline, rows)
    found: list[list[Stretch]] = [phases_of(timeline, row) if spanned[row] else [] for row in rows.tolist()]
    plain = rows[~spanned]
    begins, ends = _laid(_plain_lengths(works, plain), works.start_ns[plain], works.end_ns[plain])
    places, columns = np.nonzero(ends > begins)
    whose, names = plain[places], [ALL[_COLUMNS[column]] for column in columns.tolist()]
    times = begins[places, columns].tolist(), ends[places, columns].tolist()
    for row, *stretch in zip(whose.tolist(), *times, names, works.client[whose].tolist(), strict=True):
        found[row].append(Stretch(*stretch))
    return found


def _laid(lengths: Floats, start: Ints, stop: Ints) -> tuple[Ints, Ints]:
    """From when to when each phase goes, one after the other; the last one fills what rounding leaves."""
    there = lengths >= 1.0
    there[:, -1] |= ~there.any(axis=1)
    ends = start[:, None] + np.rint(np.cumsum(np.where(there, lengths, 0.0), axis=1)).astype(np.int64)
    later = np.logical_or.accumulate(there[:, ::-1], axis=1)[:, ::-1]
    ends[:, -1] = stop
    ends[:, :-1] = np.where(later[:, 1:], np.minimum(ends[:, :-1], stop[:, None]), stop[:, None])
    return np.concatenate([start[:, None], ends[:, :-1]], axis=1), ends


def phases_of(timeline: Timeline, row: int) -> list[Stretch]:
    """All of one client's work, in order and without a hole."""
    works = timeline.works
    start, end, client = int(works.start_ns[row]), int(works.end_ns[row]), int(works.client[row])
    spans = timeline.own.get((client, int(works.attempt[row])), ())
    told = works.phases_s[row] * 1e9
    inside, left = _spans(list(overlapping(spans, start, end)), told) if spans else ([], told)
    holes = list(_holes(inside, start, end))
    room = np.array([sum(stop - begin for begin, stop in holes)])
    guessed = bool(works.finished[row]) and not works.timed[row] and not any(one.phase == "train" for one in inside)
    lengths = _lengths(left[None], room, np.array([not guessed]))[0]
    return sorted([*inside, *_poured(holes, lengths, client)])


def _spans(spans: Sequence[Stretch], told: Floats) -> tuple[list[Stretch], Floats]:
    """The spans without what was only counted inside of them, such as a loader's time in a phase around the whole loop;
    and what is told of each phase beyond its spans."""
    totals = dict.fromkeys(CLIENT_PHASES, 0.0)
    for one in spans:
        totals[one.phase] = totals.get(one.phase, 0.0) + one.end_ns - one.start_ns
    own = {phase: told[place] for place, phase in enumerate(CLIENT_PHASES)}
    kept = {phase: min(own[phase] / total, 1.0) for phase, total in totals.items() if total > 0 < own.get(phase, 0)}
    shorter = [
        one._replace(start_ns=one.end_ns - round((one.end_ns - one.start_ns) * kept.get(one.phase, 1.0)))
        for one in spans
    ]
    left = np.array([max(own[phase] - totals[phase], 0.0) for phase in CLIENT_PHASES])
    return [one for one in shorter if one.end_ns > one.start_ns], left


def _holes(stretches: Sequence[Stretch], start: int, end: int) -> Iterator[tuple[int, int]]:
    edge = start
    for one in stretches:
        if one.start_ns > edge:
            yield edge, one.start_ns
        edge = max(edge, one.end_ns)
    if edge < end:
        yield edge, end


def _poured(holes: Sequence[tuple[int, int]], lengths: Floats, client: int) -> Iterator[Stretch]:
    """The phases, one after the other, poured into the holes; the last one fills what rounding leaves."""
    there = [(ALL[_COLUMNS[place]], float(length)) for place, length in enumerate(lengths) if length >= 1.0]
    names, ends = [name for name, _ in there] or [UNEXPLAINED], np.cumsum([length for _, length in there])
    poured = 0
    for begin, stop in holes:
        edge = begin
        for place, name in enumerate(names):
            last = place == len(names) - 1
            until = stop if last else min(begin + max(round(float(ends[place])) - poured, 0), stop)
            if until > edge:
                yield Stretch(edge, until, name, client)
                edge = until
        poured += stop - begin
