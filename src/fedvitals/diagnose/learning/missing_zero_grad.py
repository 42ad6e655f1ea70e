"""Missing zero_grad.

Sees: gradients that pile up over the steps of a participation. Where several steps' gradients were sampled, their norms
grow with the step as sums do. Where only the first was, the update: K piled steps move a client (K + 1) / 2 times as
far as K plain ones, so its rate (update / (steps * first gradient)) leaps by that factor, against its cohort and
against its own past, and its losses inside the participation go another way than before. Of the whole run: the same for
most clients, against the configured learning rate.

Matters: the client trains with a momentum of one: it overshoots, swings, and outweighs the others.

Evidence: steps, the factor that piling would give and the one seen, the score of the change, how unusual its losses'
way was, growth of the sampled gradients.

False alarms: the leap must lie between a half and seven fifths of what piling gives (on a logarithmic scale), beyond
the score that one of the run's clients would pass by chance in one of a thousand runs (with the client's own noise, or
the typical client's where that is more, and by Student's law: a few participations tell noise only roughly), begin in a
round whose model is well and after at least three usual participations, and last: for four participations, and six of
seven from then on lie beyond the middle of the leap, as a few lucky batches do not. A client whose learning rate was
raised by just that factor looks the same. With one or two steps a participation there is nothing, or next to nothing,
to pile up: not seen. Who sends a multiple of its update is told apart by its losses, which go the usual way: where an
update is longer and in nothing else another, they must lie six times further from it than the others' do, else it is
accused of a scaled update (FL602), and only suspected here. Another optimizer or momentum at one client may look like
piled gradients.

Do: optimizer.zero_grad() before each backward().

Papers: none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.cohorts import in_order, row_medians, well
from fedvitals.diagnose.evidence.accusing import SCORED_CODES, SEE, accusations
from fedvitals.diagnose.evidence.breaks import lengthened
from fedvitals.diagnose.learning.changes import changes
from fedvitals.diagnose.learning.loss_paths import unusual_path
from fedvitals.diagnose.learning.piling import of_run
from fedvitals.diagnose.learning.rates import early_jumps, loss_jumps, rates
from fedvitals.diagnose.robust import median, student, threshold
from fedvitals.diagnose.rule import Sight, WrittenRule
from fedvitals.diagnose.writing import factor, see_client, short, write
from fedvitals.store.table import Floats, Ints
from fedvitals.vocabulary import Action, Finding, Grade, Severity

FALSE_ALARMS = 1e-3  # a run
LEAST_STEPS = 3
LEAST, MOST = 0.5, 1.4  # of what piling gives, on a logarithmic scale
AMBIGUOUS_STEPS = 6  # from here on a plain factor (a scaled update) of five is inside these bounds too
OTHER_WAY = 2.0  # then the losses must lie this many times further from their usual way than the others' do
SURELY_OTHER_WAY = 6.0  # of updates that are longer and in nothing else another: scaled ones got to 5.3 by chance
LONGER = 0.6  # of the leap must show in the update's length: the rest is what its first gradient happened to be
DOUBLED = math.log(2.0)
SOON = 3  # participations after which swings may show
LEAST_USUAL = 3  # participations before the leap: the first ones of a run differ more than any later two
LASTS = 0.85  # of the participations from the leap on lie beyond its middle
NOISE = 0.05  # of a logarithm of a rate: clients with one batch an epoch show none at all
LOOKS = "trains as if its gradients were never set to zero"  # said of clients that only the scorer finds
ADVICE = (
    Action("look for a missing optimizer.zero_grad() at {clients}, or another optimizer or momentum"),
    Action(SEE),
)


def _look(chart: Chart) -> Iterator[Finding]:
    found = chart.shared(piled)
    for one in found:
        yield _of_client(chart, one)
    scaled = {one.client for one in chart.shared(lengthened)}  # sent more than they trained (FL602)
    named = chart.names(sorted({one.client for one in found} | scaled))
    likely = list(accusations(chart, RULE, ("missing-zero-grad",), LOOKS, Severity.WARNING, ADVICE, but=named))
    yield from likely
    if not found and not likely:
        yield from _of_run(chart)


@dataclass(frozen=True, slots=True)
class Pile:
    """A client whose updates leapt as piled gradients make them: from which place of its history on, and how."""

    client: int
    place: int
    leap: float
    score: float
    way: float
    sure: bool = True  # or a scaled update (FL602), for all that its losses tell


def piled(chart: Chart) -> list[Pile]:
    """The clients to accuse; none when it is half of all."""
    found = list(_piled(chart))
    return found if len(found) * 2 < len(chart.clients) else []


def _piled(chart: Chart) -> Iterator[Pile]:
    rate = chart.shared(rates)
    away, own = in_order(chart, rate.away), in_order(chart, rate.log)
    steps = row_medians(in_order(chart, chart.participations.steps))
    expected = np.log((np.where(steps >= LEAST_STEPS, steps, np.nan) + 1) / 2)
    change = changes(away, NOISE)
    shift, leap = change.shift, _leaps(own, change.split)
    longer = _leaps(in_order(chart, rate.longer), change.split)
    limit = threshold(len(chart.clients) * max(away.shape[1], 1), FALSE_ALARMS)
    limits = student(limit, np.isfinite(away).sum(axis=1) - 1.0)
    above = _at(own - in_order(chart, rate.top), change.split) > NOISE  # plain steps do not get there
    least = LEAST * expected
    fits = above & (shift > least) & (leap > least) & (longer > LONGER * leap)
    fits &= (change.split >= LEAST_USUAL) & (_lasting(away, change.split, shift) >= LASTS)
    healthy = chart.shared(well)
    only_longer = {one.client for one in chart.shared(lengthened)}
    for client in np.flatnonzero(fits & (change.score > limits)):
        rows = chart.histories[client]
        place = int(change.split[client])
        way = _way(chart, int(client), place)
        jumps, early = chart.shared(loss_jumps), chart.shared(early_jumps)
        soon = rows[place : place + SOON]
        jumped = early[rows[place]] > DOUBLED  # at once: its rate is too high (FL412)
        swings = bool(((jumps[soon] > DOUBLED) & ~(early[soon] > DOUBLED)).any())  # a momentum of one may run away
        plausible = leap[client] < MOST * expected[client] or swings
        by_itself = steps[client] < AMBIGUOUS_STEPS or swings
        if healthy[rows[place]] and not jumped and plausible and (by_itself or way > OTHER_WAY):
            sure = by_itself or client not in only_longer or way > SURELY_OTHER_WAY
            yield Pile(int(client), place, float(leap[client]), float(change.score[client]), way, sure)


def _leaps(histories: Floats, splits: Ints) -> Floats:
    """The first value after the split against the mean of the two before it."""
    before = (_at(histories, splits - 2) + _at(histories, splits - 1)) / 2
    return np.asarray(_at(histories, splits) - before)


def _lasting(histories: Floats, splits: Ints, shifts: Floats) -> Floats:
    """The share of each client's values from the split on that lie beyond the middle of the shift; NaN of none."""
    after = np.arange(histories.shape[1]) >= splits[:, None]
    usual = row_medians(np.where(after, np.nan, histories))
    with np.errstate(invalid="ignore", divide="ignore"):
        beyond = after & (histories > (usual + shifts / 2)[:, None])
        found: Floats = beyond.sum(axis=1) / (after & ~np.isnan(histories)).sum(axis=1)
    return found


def _at(histories: Floats, places: Ints) -> Floats:
    """Each client's value at its place; NaN where it has none."""
    if not histories.shape[1]:
        return np.full(len(histories), np.nan)
    inside = (places >= 0) & (places < histories.shape[1])
    return np.where(inside, histories[np.arange(len(histories)), np.where(inside, places, 0)], np.nan)


def _way(chart: Chart, client: int, place: int) -> float:
    """How unusual the losses' way was, over how unusual it was for the others in the same round."""
    number = chart.participations.round[chart.histories[client][place]]
    own = unusual_path(chart, chart.histories[client], place)
    others = []
    for other, rows in enumerate(chart.histories[:MOST_OTHERS]):
        at = int(np.searchsorted(chart.participations.round[rows], number))
        if other != client and at < len(rows) and chart.participations.round[rows[at]] == number:
            others.append(unusual_path(chart, rows, at))
    return own / max(median(np.array(others)), 1.0) if others else own


MOST_OTHERS = 50  # clients that say what is usual in a round


def _of_client(chart: Chart, pile: Pile) -> Finding:
    table, name = chart.participations, chart.clients[pile.client]
    rows = chart.histories[pile.client][pile.place :]
    steps = median(table.steps[rows])
    missing = "zero_grad() is missing" if pile.sure else "zero_grad() may be missing, if it is no scaled update (FL602)"
    return write(
        RULE,
        Severity.WARNING if pile.sure else Severity.INFO,
        f"from round {table.round[rows[0]]} on client {name}'s updates are {factor(math.exp(pile.leap))} as long "
        f"as before for its gradient and its {steps:.0f} steps, beside its cohort; gradients that pile up make "
        f"{factor((steps + 1) / 2)}: {missing}",
        grade=Grade.ACCUSED if pile.sure else Grade.SUSPECT,
        rounds=table.round[rows],
        clients=(name,),
        evidence={
            "leap_ratio": short(math.exp(pile.leap)),
            "piled_ratio": short((steps + 1) / 2),
            "steps": int(steps),
            "score": short(pile.score),
            "loss_way_ratio": short(pile.way) if math.isfinite(pile.way) else None,
        },
        next=(
            Action(f"optimizer.zero_grad() before each backward() in client {name}'s loop"),
            Action(see_client(name)),
        ),
    )


def _of_run(chart: Chart) -> Iterator[Finding]:
    seen = of_run(chart)
    if seen is not None:
        yield write(
            RULE,
            Severity.WARNING,
            f"{seen.why}: every client's gradients pile up; zero_grad() is missing",
            grade=Grade.ACCUSED,
            evidence=seen.evidence,
            next=(Action("optimizer.zero_grad() before each backward() in the clients' loop"),),
        )


RULE = WrittenRule(
    code="FL414",
    name="missing zero_grad",
    page=__doc__ or "",
    look=_look,
    needs=frozenset({Sight.UPDATES}),
    explains=frozenset({"FL402", "FL403", "FL404", "FL407", "FL410", "FL412", "FL501"}) | SCORED_CODES,
)
