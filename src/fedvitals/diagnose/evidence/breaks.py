"""The course of a run -> clients that became another from one participation to the next, and stayed so.

Who begins to send something else is most unlike himself at the first participation at which he does so: the model that
he received is still what honest clients made of it. There a mirrored update points against the client's own last ones,
by as much as these had pointed along each other; a scaled one keeps direction and layer profile and is longer by its
factor; rows of another scale lift the first gradient. Later the model has been moved, and everybody is unlike before.

So each client's three participations before are held against the next two, a step of one participation that lasts for
two. How large it must be is said by the run itself: by the steps that all its clients took in earlier rounds, and the
client by itself. A run in which such steps are nothing rare has no breaks.

What began may end: from the first two participations in a row that are as those before it again, until two in a row are
not, the client is left in peace.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.cohorts import received_losses, round_medians, well
from fedvitals.diagnose.evidence.course import course, log_shares
from fedvitals.diagnose.evidence.measures import NAMES, trained_sketches, unit
from fedvitals.diagnose.evidence.steps import AFTER, BEFORE, Steps, participated
from fedvitals.diagnose.robust import TO_SIGMA, median
from fedvitals.store.table import Bools, Floats, Ints

SKETCHED = 1 / 16  # how far the cosine of two sketches is from that of their vectors
TURNED = -0.4  # cosine of the two after to the three before
AGAINST = 0.5  # of how alike its updates were before: by so much at least it is unlike now
TURNS = -0.2  # cosine of an update to the client's last one, below which it turned
RARE_TURNS, RARE_LEAPS, RARE_LIFTS = 0.01, 0.02, 0.005  # shares of the run's earlier steps that were such, too
MANY_STEPS = 60  # of which such a share tells something; of fewer a lift must be twice as large
STEADY = 0.85  # cosine of a client's updates to each other, and then as far the other way
TOWARDS_OTHERS = 0.3  # cosine to the others after it: who turns to where they go repents
NOISES = 5.0  # robust deviations of the run's earlier steps
TWICE, FIVEFOLD, TENFOLD = math.log(2.0), math.log(5.0), math.log(10.0)
BEYOND_OWN = 2.0  # times the client's own largest step before
FAR_BEYOND_OWN, RARE_OF_STEADY = 8.0, 0.04  # of a client that was so steady, others' steps say less
PROFILE = 1.0  # by how much the logarithm of a layer's share may differ
TELLING_SHARE = math.log(0.05)  # of an update's norm, that a layer's must be
SAME_WAY = 2 * SKETCHED  # cosine to those before, from which on an update goes with them, or below minus that against
HALF = 0.5  # of the leap: what is less long than that above those before is as they were
NOTHING_LEFT = 0.03  # of the loss that the run began with: of rows that are learnt the rest is chance
LEAST_NOISE = 0.02
LOSS_TOO = 0.5  # of the leap in length that must remain when the loss is taken off


@dataclass(frozen=True, slots=True)
class Break:
    """One client, and the row of the first participation in which it was another."""

    client: int
    row: int
    rounds: tuple[int, ...]  # from then on, while it was another
    size: float  # of the step: a cosine, or a logarithm
    before: float  # the same number of the steps before it: how alike its last two were, or its own largest
    over: bool = False  # whether it was as before again when the run ended

    @property
    def since(self) -> str:
        """In words, when."""
        return f"from round {self.rounds[0]} {f'until round {self.rounds[-1]},' if self.over else 'on'}"


def turned(chart: Chart) -> tuple[Break, ...]:
    """Clients whose updates began to point against their own."""
    steps = chart.shared(participated)
    alike, good = _measure(chart, "own_previous"), chart.shared(well)
    mine, others = steps.of(alike), steps.of(_measure(chart, "cosine"))
    usual, often = round_medians(chart, alike), _shares(chart, alike < TURNS, np.isfinite(alike))
    found = []
    for place, clients in steps:
        first = steps.rows[clients, place]
        now, last, after = (mine[clients, place + shift] for shift in (0, -1, 1))
        with np.errstate(invalid="ignore"):
            fits = (now < -AGAINST * last) & (after > 0) & (mine[clients, 2:place] > 0).all(axis=1)
            steady = (last > STEADY) & (now < -STEADY)
            fits &= (usual[first] > 0) & good[first] & (often[first] < np.where(steady, RARE_OF_STEADY, RARE_TURNS))
            fits &= others[clients, place : place + AFTER].mean(axis=1) < TOWARDS_OTHERS
        for client in clients[fits]:
            opposite, later = _against_before(chart, steps.rows[client, place - BEFORE : place + AFTER])
            rare = often[steps.rows[client, place]] < RARE_TURNS
            if opposite < (TURNED if rare else -STEADY) and later < 0:
                sides = _sides(chart, steps.rows[client], place)
                found.append(_break(chart, steps, int(client), place, opposite, float(mine[client, place - 1]), sides))
    return _earliest(found)


def lengthened(chart: Chart) -> tuple[Break, ...]:
    """Clients whose updates became longer by a factor, and in nothing else another. Beside one of them it takes less:
    who became longer by about that factor in the same round, and goes on in his direction."""
    steps, alike = chart.shared(participated), chart.shared(participated).of(_measure(chart, "own_previous"))
    lengths = steps.of(_against_cohort(chart, "norm"))
    leaps, earlier = _leaps(lengths), _Earlier(chart, steps, lengths)
    sure, likely = [], []
    for client, place in np.argwhere(leaps > TWICE).tolist():
        row, leap = int(steps.rows[client, place]), float(leaps[client, place])
        own = float(np.abs(np.diff(lengths[client, :place])).max())
        if (
            leap < NOISES * earlier.noise(row)
            or not alike[client, place] > AGAINST * alike[client, place - 1] - SKETCHED
        ):
            continue
        found = _break(chart, steps, client, place, leap, own, _above(lengths[client], place, leap))
        likely.append(found)
        rare = RARE_LEAPS if leap < FAR_BEYOND_OWN * own else RARE_OF_STEADY
        lone = leap > BEYOND_OWN * own and earlier.share(row, AGAINST * leap) < rare
        if lone and _only_longer(chart, steps, client, place, leap):
            sure.append(found)
    rounds = chart.participations.round
    by_round = {int(rounds[one.row]): one.size for one in reversed(_earliest(sure))}
    beside = [
        one
        for one in likely
        if chart.shared(well)[one.row] and abs(by_round.get(int(rounds[one.row]), math.inf) - one.size) < TWICE
    ]
    return _earliest([*sure, *beside])


def _only_longer(chart: Chart, steps: Steps, client: int, place: int, leap: float) -> bool:
    """On a model that is well, with something to learn, and neither for its loss nor in its layers another."""
    by_loss = steps.of(_against_cohort(chart, "norm_for_loss"))[client]
    rest = by_loss[place] - by_loss[place - BEFORE : place].max()
    can = chart.shared(_can_tell)[steps.rows[client, place]]
    return bool(can and rest > LOSS_TOO * leap and _keeps_profile(chart, steps.rows[client], place))


def steeper(chart: Chart) -> tuple[Break, ...]:
    """Clients whose first gradients, of models that others received too, became many times as long."""
    steps = chart.shared(participated)
    lengths = steps.of(_against_cohort(chart, "gradient"))
    leaps, can, earlier = _leaps(lengths), chart.shared(_can_tell), _Earlier(chart, steps, lengths)
    found = []
    for client, place in np.argwhere(leaps > FIVEFOLD).tolist():
        row, leap = int(steps.rows[client, place]), float(leaps[client, place])
        enough = leap > (FIVEFOLD if earlier.count(row) >= MANY_STEPS else TENFOLD)
        if (
            can[row]
            and enough
            and leap > NOISES * earlier.noise(row)
            and earlier.share(row, AGAINST * leap) < RARE_LIFTS
        ):
            own = float(np.abs(np.diff(lengths[client, :place])).max())
            found.append(_break(chart, steps, client, place, leap, own, _above(lengths[client], place, leap)))
    return _earliest(found)


def mirrored(chart: Chart) -> tuple[Break, ...]:
    """Those who turned and whose rows are what they were: what they send is another, not what they train on."""
    return tuple(one for one in chart.shared(turned) if not _loss_leapt(chart, one))


def relabelled(chart: Chart) -> tuple[Break, ...]:
    """Those who turned because the received model's loss on their rows leapt: these are other rows, or other labels."""
    return tuple(one for one in chart.shared(turned) if _loss_leapt(chart, one))


def unlike_themselves(chart: Chart) -> frozenset[int]:
    """Clients with a break of any kind."""
    return frozenset(one.client for kind in (turned, lengthened, steeper) for one in chart.shared(kind))


def _loss_leapt(chart: Chart, one: Break) -> bool:
    steps = chart.shared(participated)
    losses = steps.of(_against_cohort(chart, "first_loss"))
    place = int(np.flatnonzero(steps.rows[one.client] == one.row)[0])
    noise = _Earlier(chart, steps, losses).noise(one.row)
    return bool(losses[one.client, place] - losses[one.client, place - BEFORE : place].max() > NOISES * noise)


def _measure(chart: Chart, name: str) -> Floats:
    found: Floats = chart.shared(course).raw[:, NAMES.index(name)]
    return found


def _against_cohort(chart: Chart, name: str) -> Floats:
    values = _measure(chart, name)
    found: Floats = values - round_medians(chart, values)
    return found


def _leaps(values: Floats) -> Floats:
    """By how much the least of those after is above the highest of those before; -inf where there are too few."""
    found = np.full(values.shape, -np.inf)
    for place in range(BEFORE, values.shape[1] - AFTER + 1):
        before, after = values[:, place - BEFORE : place], values[:, place : place + AFTER]
        found[:, place] = after.min(axis=1) - before.max(axis=1)
    return np.where(np.isnan(found), -np.inf, found)


class _Earlier:
    """The steps that all clients took, in the order of the rounds: how large they were before a row's round."""

    def __init__(self, chart: Chart, steps: Steps, values: Floats) -> None:
        moves, to = np.diff(values, axis=1), steps.rows[:, 1:]
        known = (to >= 0) & np.isfinite(moves)
        rounds = chart.participations.round
        order = np.argsort(rounds[to[known]], kind="stable")
        self._moves, self._rounds = moves[known][order], rounds[to[known]][order]
        self._all, self._noises = rounds, dict[int, float]()

    def _before(self, row: int) -> Floats:
        found: Floats = self._moves[: np.searchsorted(self._rounds, self._all[row])]
        return found

    def count(self, row: int) -> int:
        """How many there were."""
        return len(self._before(row))

    def noise(self, row: int) -> float:
        """Their spread; without any, nothing is beyond it."""
        number = int(self._all[row])
        if number not in self._noises:
            moves = self._before(row)
            self._noises[number] = max(TO_SIGMA * median(np.abs(moves)), LEAST_NOISE) if len(moves) else math.inf
        return self._noises[number]

    def share(self, row: int, leap: float) -> float:
        """Of those that were larger than this."""
        moves = self._before(row)
        return float((moves > leap).mean()) if len(moves) else 1.0


def _shares(chart: Chart, marked: Bools, known: Bools) -> Floats:
    """For each row, the share of what is marked among what is known in all rounds before its own; 1 where nothing."""
    found = np.ones(len(marked))
    hits = seen = 0
    for _, rows in chart.cohorts:
        found[rows] = hits / seen if seen else 1.0
        hits, seen = hits + int((marked & known)[rows].sum()), seen + int(known[rows].sum())
    return found


def _can_tell(chart: Chart) -> Bools:
    """Rows on models that are well, of clients that have something left to learn."""
    losses = received_losses(chart)
    began = median(losses[chart.cohorts[0][1]]) if chart.cohorts else math.nan
    with np.errstate(invalid="ignore"):
        return np.asarray(chart.shared(well) & (np.fmin(losses, round_medians(chart, losses)) > NOTHING_LEFT * began))


def _against_before(chart: Chart, rows: Ints) -> tuple[float, float]:
    """The cosine of those after to those before, and that of the last one alone."""
    updates = chart.updates
    if updates is None or updates.sketches is None:
        return 0.0, 0.0
    sketches = unit(trained_sketches(updates, updates.sketches[rows]).astype(np.float64))
    before, after = unit(sketches[:BEFORE].sum(axis=0)), unit(sketches[BEFORE:].sum(axis=0))
    return float(before @ after), float(before @ sketches[-1])


def _keeps_profile(chart: Chart, rows: Ints, place: int) -> bool:
    """Whether each layer that tells something has about its usual share in the update."""
    updates = chart.updates
    if updates is None:
        return False
    shares = log_shares(updates, rows[place - BEFORE : place + 1])
    usual = np.median(shares[:BEFORE], axis=0)
    telling = usual > TELLING_SHARE
    return bool((np.abs(shares[BEFORE] - usual)[telling] < PROFILE).all())


def _above(values: Floats, place: int, leap: float) -> Floats:
    """[participations from this place on]: 1 where such a value is far above those before it, -1 where not."""
    limit = values[place - BEFORE : place].max() + HALF * leap
    return np.where(np.isnan(values[place:]), 0.0, np.where(values[place:] > limit, 1.0, -1.0))


def _sides(chart: Chart, rows: Ints, place: int) -> Floats:
    """[participations from this place on]: 1 where an update goes against those before it, -1 where with them."""
    updates = chart.updates
    if updates is None or updates.sketches is None:
        return np.ones(len(rows) - place)
    kept = rows[place - BEFORE :]
    sketches = unit(trained_sketches(updates, updates.sketches[kept[kept >= 0]]).astype(np.float64))
    alike = sketches[BEFORE:] @ unit(sketches[:BEFORE].sum(axis=0))
    return np.where(np.abs(alike) < SAME_WAY, 0.0, -np.sign(alike))


def _another(sides: Floats) -> Bools:
    """Of participations from a break on, those in which the client is another: what two in a row say holds."""
    found, now = np.ones(len(sides), bool), 1.0
    for place in range(AFTER, len(sides)):
        if (sides[place : place + AFTER] == -now).sum() == AFTER:
            now = -now
        found[place] = now > 0
    return found


def _break(chart: Chart, steps: Steps, client: int, place: int, size: float, before: float, sides: Floats) -> Break:
    rows = steps.rows[client, place:]
    rows = rows[rows >= 0]
    another = _another(sides[: len(rows)])
    rounds = tuple(sorted({int(one) for one in chart.participations.round[rows[another]]}))
    return Break(client, int(rows[0]), rounds, size, before, over=not another[-1])


def _earliest(found: list[Break]) -> tuple[Break, ...]:
    """One a client, the largest first. What was over at once, after no more than it takes to be seen, was chance."""
    first: dict[int, Break] = {}
    for one in found:
        if one.over and len(one.rounds) <= AFTER:
            continue
        kept = first.setdefault(one.client, one)
        first[one.client] = min(kept, one, key=lambda each: each.row)
    return tuple(sorted(first.values(), key=lambda one: -abs(one.size)))
