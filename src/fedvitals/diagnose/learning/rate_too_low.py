"""Learning rate too low.

Sees: of a client, an update less than a 30th of what its first gradient and its steps would make with the cohort's
rate, in at least two of its participations. Of the whole run, updates below a thousandth of the model, in its first
rounds too, while the loss hardly falls.

Matters: such a client takes part, costs its time and traffic, and says next to nothing; weighted by its rows it even
holds the others back. A run of such clients gets nowhere.

Evidence: the client's rate against the cohort's (update / (steps * first gradient), see `rates.py`; update / steps
where no gradients were sampled), its score, how its loss moves inside its training; for the run, update over model and
the progress made.

False alarms: a 30th of the cohort's rate, beyond the score that one of the run's participations would pass by chance
in one of a thousand runs, in most participations from the first on, by a client whose own training does not halve its
loss: who has learnt its few rows after one step moves no further. Where no gradients were sampled, a client with little
left to learn moves little: then its loss must be like the others' and not fall. An update of exactly zero is not this
(FL604).

Do: set that client's learning rate to the others'.

Papers: none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.coded import advice
from fedvitals.diagnose.cohorts import lasting, received_losses, round_medians, well
from fedvitals.diagnose.evidence.accusing import SCORED_CODES, SEE, accusations
from fedvitals.diagnose.learning.curves import learning_curve
from fedvitals.diagnose.learning.rates import blamed, rates
from fedvitals.diagnose.robust import median, threshold
from fedvitals.diagnose.rule import CannotSee, Sight, WrittenRule
from fedvitals.diagnose.writing import factor, see_client, short, write
from fedvitals.store.table import Bools, Floats, Ints
from fedvitals.vocabulary import Action, Finding, Grade, Severity

FALSE_ALARMS = 1e-3  # a run
FAR = math.log(30.0)  # well beyond an order of magnitude, which clipping or a single class may make of gradients
HALVES = 0.5  # of it: a rate that does so is not too low, however short the update
FALLS = 0.9  # of the loss on receipt: what training on one's own rows gets below at once with a rate that works
LIKE_OTHERS = 0.5  # of the cohort's loss on receipt: there is something left to learn
TIMES = 2  # participations, so that one odd round accuses nobody
CREEPS = 1e-3  # update over model: below this a hundred rounds move the model by a tenth at most
NO_PROGRESS = 0.1  # share of the first loss
LEAST_ROUNDS = 5
LOOKS = "trains as with a learning rate far too low"  # said of clients that only the scorer finds
ADVICE = (
    Action("compare the learning rate of {clients} with the others'"),
    Action(SEE),
)


def _look(chart: Chart) -> Iterator[Finding]:
    tiny = _tiny(chart)
    clients, counts = np.unique(chart.participations.client[tiny], return_counts=True)
    for client in clients[counts >= TIMES]:
        yield _of_client(chart, int(client), np.flatnonzero(tiny & (chart.participations.client == client)))
    named = chart.names(clients[counts >= TIMES])
    likely = list(accusations(chart, RULE, ("tiny-lr",), LOOKS, Severity.WARNING, ADVICE, but=named))
    yield from likely
    if not named and not likely:
        yield from _of_run(chart)


def _tiny(chart: Chart) -> Bools:
    rate = chart.shared(rates)
    far = max(FAR, threshold(len(rate.log), FALSE_ALARMS) * rate.spread)
    small = (rate.high_away < -far) & chart.shared(well)
    found = blamed(chart, small & ~_falls(chart, HALVES) if rate.by_gradient else small & _stands(chart))
    return lasting(chart, found, np.isfinite(rate.high_away) & chart.shared(well))


def _stands(chart: Chart) -> Bools:
    """Its loss is like the others', and its training does not lower it."""
    losses = received_losses(chart)
    return (losses > LIKE_OTHERS * round_medians(chart, losses)) & ~_falls(chart, FALLS)


def _falls(chart: Chart, to: float) -> Bools:
    """Its loss is below this share of what it was on receipt when its training ends."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(chart.participations.last_loss / received_losses(chart) < to)


def _of_client(chart: Chart, client: int, rows: Ints) -> Finding:
    table, rate = chart.participations, chart.shared(rates)
    name = chart.clients[client]
    away = median(rate.high_away[rows])
    with np.errstate(divide="ignore", invalid="ignore"):
        kept = median(table.last_loss[rows] / received_losses(chart)[rows])
    moved = "its gradient and steps" if rate.by_gradient else "its steps"
    past = _own_past(chart, client, rows)
    before = f"; earlier it was {factor(math.exp(past - away))} as long" if past - away > math.log(2) else ""
    loss = f"; its training leaves its loss at {kept:.0%} of what it was on receipt" if math.isfinite(kept) else ""
    return write(
        RULE,
        Severity.WARNING,
        f"client {name}'s updates are {factor(math.exp(-away))} too short for {moved}, beside its cohort, in "
        f"{len(rows)} "
        f"participations from round {table.round[rows[0]]} on{before}{loss}: its learning rate is far too low",
        grade=Grade.ACCUSED,
        rounds=table.round[rows],
        clients=(name,),
        evidence={
            "rate_ratio": short(math.exp(away)),
            "score": short(away / rate.spread) if rate.spread > 0 else None,
            "loss_kept_ratio": short(kept),
            "by_gradient": rate.by_gradient,
            "participations": len(rows),
        },
        next=(
            Action(f"compare client {name}'s learning rate with the others'"),
            Action(see_client(name)),
        ),
    )


def _own_past(chart: Chart, client: int, rows: Ints) -> float:
    """Its distance from the cohort before the first of these."""
    earlier = chart.histories[client]
    earlier = earlier[chart.participations.attempt[earlier] < chart.participations.attempt[rows].min()]
    return median(chart.shared(rates).high_away[earlier])


def _of_run(chart: Chart) -> Iterator[Finding]:
    try:
        curve = learning_curve(chart, LEAST_ROUNDS).finite
    except CannotSee:
        return
    ratios = _update_to_model(chart)
    early = np.concatenate([rows for _, rows in chart.cohorts[:LEAST_ROUNDS]])
    typical = max(median(ratios), median(ratios[early]))  # updates that only became so small have another cause
    if len(curve) < LEAST_ROUNDS or not typical < CREEPS:
        return
    progress = (curve.values[0] - curve.values.min()) / abs(curve.values[0]) if curve.values[0] else 0.0
    if progress > NO_PROGRESS:
        return
    yield write(
        RULE,
        Severity.WARNING,
        f"updates are {typical:.1e} of the model's length, and in {len(curve)} rounds the {curve.of} went from "
        f"{curve.values[0]:.4g} to {curve.values[-1]:.4g}: the learning rate is too low to get anywhere",
        grade=Grade.ACCUSED,
        rounds=curve.rounds[curve.rounds >= 0],
        evidence={"update_to_model_ratio": short(typical), "progress_ratio": short(progress), "rounds": len(curve)},
        next=(
            *advice(chart),
            Action("raise the learning rate (train.lr) tenfold, and again while the loss falls faster", safe=False),
        ),
    )


def _update_to_model(chart: Chart) -> Floats:
    """The length of each update over that of the model it began from; NaN where either is unknown or nothing was
    sent."""
    lengths = {one.version: float(np.sqrt(np.nansum(one.stats[:, 0].astype(np.float64) ** 2))) for one in chart.models}
    table = chart.participations
    own = np.array([lengths.get(int(version), math.nan) for version in table.base_version])
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = table.update_norm / own
    return np.where(np.isfinite(ratios) & (ratios > 0), ratios, np.nan)


RULE = WrittenRule(
    code="FL413",
    name="learning rate too low",
    page=__doc__ or "",
    look=_look,
    needs=frozenset({Sight.UPDATES}),
    explains=frozenset({"FL404", "FL406", "FL408", "FL604"}) | SCORED_CODES,
)
