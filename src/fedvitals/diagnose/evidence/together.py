"""The course of a run -> clients that changed in the same way in the same round.

One client that begins to teach something beside its task is often too quiet to be told from the others; several that
begin it together are not, since they all change in one direction: they were taken over together, or got the same bad
release. So each client's first two participations from a round on are held against its last three before it, less what
all do. Along the main directions of these differences the clients are parted into a few and the rest where that leaves
least within either (Otsu 1979), and once more along the mean of those few until they stay the same (Lloyd 1982). Each
of them is then measured along the mean of the *others*: nobody votes for himself.

Honest groups there are, too: who holds a class that the model just begins to learn. These had been alike before, which
the others had not; and where a run's clients part as clearly in other rounds, none of its groups tells anything. Above
all, what is chance passes: a group is one only if the same clients still stand apart in the same direction in their
next three participations, which had no part in finding them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.cohorts import well
from fedvitals.diagnose.evidence.measures import rows_of, trained_sketches, unit
from fedvitals.diagnose.evidence.memory import unlike
from fedvitals.diagnose.evidence.steps import AFTER, BEFORE, participated
from fedvitals.diagnose.evidence.units import TINY, Numbers
from fedvitals.diagnose.robust import TO_SIGMA
from fedvitals.store.table import Bools, Floats, Ints
from fedvitals.vocabulary import Grade

LEAST_CLIENTS = 20  # fewer part into halves by chance
FEW = 0.35  # of the clients that were in such a round: more are the cohort
LATE = 2  # rounds by which one of them may have come later than the others
MAIN = 3  # directions along which clients are parted, either way
SKETCHED, ROUNDS_OF_POWER = 8, 6  # of the subspace in which these are looked for
BY_CHANCE = 1.4  # deviations: normal numbers part at 1.23
TURNS = 6  # until a group stays the same
LATER = 3  # participations after these, in which they must still stand apart
STAYS = 2.0  # deviations by which: chance left 1.7 at most in sound runs of made-up worlds, most faults 2.2 and more
FAR = 3.0  # robust deviations of the rest that each of them must be beyond
UNLIKE_BEFORE = 0.2, 0.6  # their mean cosine to each other had been no higher, nor lower than minus this
OWN_ROUNDS = 2, 4  # rounds before and after it in which the same change still shows
SEEN_IN_OTHERS = 2.0  # robust deviations, from which on a group of another round counts


@dataclass(frozen=True, slots=True)
class Bar:
    """What a group must be: how far apart from the rest, in deviations within them, and how alike."""

    clients: int
    apart: float
    alike: float  # mean cosine of their changes
    beyond_others: float  # times as far as groups of the run's other rounds


ACCUSED = (Bar(3, 2.0, 0.2, 1.25), Bar(2, 2.5, 0.5, 1.5))
SUSPECTED = (Bar(6, 1.6, 0.33, 1.25),)


@dataclass(frozen=True, slots=True)
class Turn:
    """Clients that changed together, and the rows of their first participations from that round on."""

    round: int
    clients: tuple[int, ...]
    rows: tuple[int, ...]
    apart: float
    alike: float
    alike_before: float
    nearest: float  # of its clients, in robust deviations of the rest
    stays: float  # how far apart they are later on; NaN as long as that is not known
    sound: bool = True  # all of it on models that were well: on one that somebody spoilt whole groups go astray
    grade: Grade = Grade.SUSPECT


def turns(chart: Chart) -> tuple[Turn, ...]:
    """Groups that stand out, the clearest first; a client is in one of them. Ask through `chart.shared(turns)`."""
    candidates = list(_candidates(chart))
    found: list[Turn] = []
    for one in sorted(candidates, key=lambda each: -each.apart):
        grade = _graded(one, candidates)
        if grade is not None and not any(set(one.clients) & set(other.clients) for other in found):
            found.append(replace(one, grade=grade))
    return tuple(found)


def _graded(one: Turn, candidates: list[Turn]) -> Grade | None:
    """How sure it is that they are a group; None if it is not."""
    highest, lowest = UNLIKE_BEFORE
    if not one.sound or one.nearest < FAR or not one.stays >= STAYS or not -lowest <= one.alike_before <= highest:
        return None
    before, after = OWN_ROUNDS
    others = max(
        (
            other.apart
            for other in candidates
            if other.nearest > SEEN_IN_OTHERS and not one.round - before <= other.round <= one.round + after
        ),
        default=0.0,
    )
    for grade, bars in ((Grade.ACCUSED, ACCUSED), (Grade.SUSPECT, SUSPECTED)):
        for bar in bars:
            clear = one.apart >= max(bar.apart, bar.beyond_others * others) and one.alike >= bar.alike
            if len(one.clients) >= bar.clients and clear:
                return grade
    return None


def _candidates(chart: Chart) -> Iterator[Turn]:
    """The clearest group of each round, whether it is one or not."""
    updates = chart.updates
    if updates is None or updates.sketches is None:
        return
    rows = chart.shared(participated).rows
    wide = np.pad(rows, ((0, 0), (0, LATER)), constant_values=-1)
    directions, good = _unlike(chart), chart.shared(well)
    numbers = np.where(rows >= 0, chart.participations.round[rows], np.iinfo(np.int64).max)
    for number, _ in chart.cohorts:
        place = (numbers < number).sum(axis=1)
        there = np.flatnonzero((place >= BEFORE) & (place + AFTER <= rows.shape[1]))
        there = there[rows[there, place[there] + AFTER - 1] >= 0]
        there = there[numbers[there, place[there]] <= number + LATE]
        if len(there) >= LEAST_CLIENTS:
            own = wide[there[:, None], place[there, None] + np.arange(-BEFORE, AFTER + LATER)]
            clearest = _clearest(number, there, own, directions)
            if clearest is not None:
                turned = own[np.isin(there, clearest.clients), : BEFORE + AFTER]
                yield replace(clearest, sound=bool(good[turned].all()))


def _unlike(chart: Chart) -> Numbers:
    """[participations, buckets]: where each update points beside its cohort."""
    updates = chart.updates
    assert updates is not None
    assert updates.sketches is not None
    found = np.zeros(updates.sketches.shape, np.float32)
    for _, cohort in chart.cohorts:
        rows = rows_of(chart, cohort)
        if len(rows):
            found[rows] = unlike(unit(trained_sketches(updates, updates.sketches[rows].astype(np.float32))))
    return found


def _clearest(number: int, clients: Ints, rows: Ints, directions: Numbers) -> Turn | None:
    """None where clients differ along no direction by more than chance makes them differ."""
    before = directions[rows[:, :BEFORE]].mean(axis=1)
    change = directions[rows[:, BEFORE : BEFORE + AFTER]].mean(axis=1) - before
    axes = [axis for axis in _main(change) if _few(change @ axis)[1] > BY_CHANCE]
    if not axes:
        return None
    change -= np.median(change, axis=0)
    settled = {tuple(sorted(_settled(change, axis).tolist())) for axis in axes}
    clearest, members = max(
        ((_told(number, clients, rows, change, before, list(some)), list(some)) for some in settled),
        key=lambda told: told[0].apart,
    )
    return replace(clearest, stays=_stays(rows[:, BEFORE + AFTER :], change, directions, before, members))


def _main(change: Numbers) -> Iterator[Numbers]:
    """The directions in which changes differ most, either way: by the power method in a small subspace that begins with
    the largest changes."""
    largest = np.argsort(-np.einsum("ij,ij->i", change, change), kind="stable")[:SKETCHED]
    base = np.linalg.qr(change[largest].T)[0]
    for _ in range(ROUNDS_OF_POWER):
        base = np.linalg.qr(change.T @ (change @ base))[0]
    inside = np.linalg.svd(change @ base, full_matrices=False)[2]
    for axis in (inside @ base.T)[:MAIN]:
        yield axis
        yield -axis


def _settled(change: Numbers, axis: Numbers) -> Ints:
    """The few at one end of this axis, and then of the one that they themselves are about."""
    members, _ = _few(change @ axis)
    for _ in range(TURNS):
        again, _ = _few(change @ change[members].sum(axis=0))
        if np.array_equal(np.sort(again), np.sort(members)):
            break
        members = again
    return members


def _few(along: Numbers) -> tuple[Ints, float]:
    """Those at the upper end who, parted from the rest, leave least within either; and how far apart the two are."""
    order = np.argsort(-along, kind="stable")
    values, count = along[order].astype(np.float64), len(along)
    sizes = np.arange(2, max(int(FEW * count), 2) + 1)
    sums, squares = np.cumsum(values), np.cumsum(values**2)
    few, rest = sums[sizes - 1], sums[-1] - sums[sizes - 1]
    within = squares[-1] - few**2 / sizes - rest**2 / (count - sizes)
    between = (few / sizes - rest / (count - sizes)) ** 2 * sizes * (count - sizes) / count
    shares = between / np.maximum(within, TINY)
    best = int(shares.argmax())
    return order[: sizes[best]], float(np.sqrt(shares[best]))


def _told(number: int, clients: Ints, rows: Ints, change: Numbers, before: Numbers, members: list[int]) -> Turn:
    """A group, and how clear it is."""
    along = _along(change, change, members)
    rest = np.delete(along, members)
    middle = np.median(along)
    spread = max(TO_SIGMA * float(np.median(np.abs(along - middle))), TINY)
    return Turn(
        round=number,
        clients=tuple(clients[members].tolist()),
        rows=tuple(rows[members, BEFORE].tolist()),
        apart=_apart(along[members], rest),
        alike=_alike(change[members]),
        alike_before=_alike(before[members]),
        nearest=float(along[members].min() - middle) / spread,
        stays=np.nan,
    )


def _stays(later: Ints, change: Numbers, directions: Numbers, before: Numbers, members: list[int]) -> float:
    """How far apart they still are in participations that had no part in finding them, of clients that have them all;
    NaN where these are fewer than half of the group."""
    known: Bools = np.asarray((later >= 0).all(axis=1))
    if known[members].sum() < max(2, len(members) / 2) or known.sum() < LEAST_CLIENTS / 2:
        return np.nan
    along = _along(directions[later].mean(axis=1) - before, change, members)
    few = np.isin(np.arange(len(along)), members)
    return _apart(along[few & known], along[~few & known])


def _along(vectors: Numbers, change: Numbers, members: list[int]) -> Floats:
    """How far each goes the way of those members, of whom nobody votes for himself."""
    together = change[members].sum(axis=0)
    found: Floats = (vectors @ unit(together[None])[0]).astype(np.float64)
    found[members] = np.einsum("ij,ij->i", vectors[members], unit(together - change[members]))
    return found


def _apart(few: Floats, rest: Floats) -> float:
    """The deviation between the two over that within them."""
    count = len(few) + len(rest)
    within = (few.var() * len(few) + rest.var() * len(rest)) / count
    return float((few.mean() - rest.mean()) * np.sqrt(len(few) * len(rest)) / count / np.sqrt(max(within, TINY**2)))


def _alike(vectors: Numbers) -> float:
    """Their mean cosine to each other."""
    count, whole = len(vectors), unit(vectors).sum(axis=0)
    return float((whole @ whole - count) / (count * (count - 1)))
