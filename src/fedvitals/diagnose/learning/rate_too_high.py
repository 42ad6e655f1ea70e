"""Learning rate too high.

Sees: of a client, an update at least twenty times too long for the gradient it began with and the steps it took,
measured against its cohort's, with a loss that jumps inside its steps or ends as NaN. Of the whole run, losses that
rise or jump inside the participations of most clients in many rounds.

Matters: one such update outweighs all others; the averaged model is thrown back to guessing. With the rate too high for
everybody the run diverges or swings.

Evidence: the client's rate against the cohort's (update / (steps * first gradient), see `rates.py`; update / steps
where no gradients were sampled), its score in robust deviations, the jump of its loss; for the run, the share of
participations whose loss rose.

False alarms: a client is accused at twenty times its cohort's rate only, beyond the score that one of the run's
participations would pass by chance in one of a thousand runs, and never in rounds whose model is sick already. A client
with a single step shows no loss after it: then thirty times are asked, and a scaled update (FL602) looks the same.
Who is as usual in most of its participations after that had bad luck
once, and is named no more. Where the model learns all the same, most rounds must be so before the run's rate is blamed;
a model that was trained before the run began has learnt: it is measured by the loss of guessing. Nor is it blamed
after a round in which the server moved the model more than twice as far as the longest update: that is no client's
doing (FL402).

Do: set that client's learning rate to the others'. For a run: lower it, clip gradients, or warm up.

Papers: Bengio 2012, Practical recommendations for gradient-based training of deep architectures (arXiv:1206.5533).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.cohorts import against_cohort, finite_update, first_gradients, lasting, received_losses, well
from fedvitals.diagnose.evidence.accusing import SCORED_CODES, SEE, accusations
from fedvitals.diagnose.learning.curves import beginning, learning_curve, overshoots, received
from fedvitals.diagnose.learning.missing_zero_grad import piled
from fedvitals.diagnose.learning.rates import (
    NEARLY_NONE,
    blamed,
    early_jumps,
    late_losses,
    loss_jumps,
    rates,
    small_loss,
    step_losses,
)
from fedvitals.diagnose.robust import median, threshold
from fedvitals.diagnose.rule import CannotSee, Sight, WrittenRule
from fedvitals.diagnose.writing import changing, factor, see_client, short, write
from fedvitals.store.table import Bools, Ints
from fedvitals.vocabulary import Action, Finding, Grade, Severity

FALSE_ALARMS = 1e-3  # a run
FAR = math.log(20.0)  # more than an order of magnitude: what "far too high" means
FAR_ALONE = math.log(30.0)  # and where nothing but the length speaks
DOUBLED = math.log(2.0)  # a loss that doubles inside a participation: the steps undo what they learn
LEAPT = math.log(1.5)  # by half, for most clients of a round at once
GROWN = math.log(1.3)  # a loss that grows at all, where only one is known after the first step
LONGER = math.log(3.0)  # than the cohort's updates: a rate is judged by a first gradient, which may be small by chance
FIVEFOLD = math.log(5.0)
OVERFLOWS = 10.0  # times the loss that the run began with
RISEN = 1.2  # the second half of a participation over its loss on receipt
NOT_LEARNT = 0.8  # of the loss that the run began with, or of guessing
MANY_ROUNDS = 0.2  # share of the rounds, at least two, in which most clients' losses must rise
MOST_ROUNDS = 0.5  # the same where the model learns all the same
LAST = 3  # evaluations that say how it ended
HALVED, NEAR_BEST = 0.5, 1.1  # of the first loss, or of guessing, and of the least: such a model learns
LOOKS = "trains as with a learning rate far too high"  # said of clients that only the scorer finds
ADVICE = (
    Action("compare the learning rate of {clients} with the others'"),
    Action(SEE),
)


def _look(chart: Chart) -> Iterator[Finding]:
    wild = _wild(chart)
    for client in np.unique(chart.participations.client[wild]):
        rows = np.flatnonzero(wild & (chart.participations.client == client))
        yield _of_client(chart, int(client), rows)
    named = chart.names(np.unique(chart.participations.client[wild]))
    likely = list(accusations(chart, RULE, ("exploding-lr",), LOOKS, Severity.WARNING, ADVICE, but=named))
    yield from likely
    if not wild.any() and not likely:
        yield from _of_run(chart)


def _wild(chart: Chart) -> Bools:
    """Participations that are far too long and whose losses show it. A sure one vouches for the client's others."""
    table, rate, jumps = chart.participations, chart.shared(rates), chart.shared(loss_jumps)
    far = max(FAR, threshold(len(table), FALSE_ALARMS) * rate.spread)
    long = blamed(chart, (rate.low_away > far) & (rate.longer > LONGER) & (rate.low > rate.top + FIVEFOLD))
    # Gradients that pile up (FL414) begin as usual: a rate too high shows after the first step or two.
    jumped = (chart.shared(early_jumps) > DOUBLED) | ((table.steps == 2) & (jumps > GROWN))
    single = (table.steps <= 1) & (rate.low_away > FAR_ALONE)
    overflown = blamed(chart, chart.shared(_overflown))
    calm = ~_most_leap(chart)
    surely = calm & chart.shared(well) & ~_other_inputs(chart) & ((long & (jumped | single)) | overflown)
    for pile in chart.shared(piled):  # piled gradients end as long as a rate far too high; FL414 names those
        surely &= (table.client != pile.client) | (table.attempt < pile.place)
    guilty = np.isin(table.client, table.client[surely])
    return lasting(
        chart, np.asarray(surely | (guilty & (long | overflown))), np.isfinite(rate.low_away) & chart.shared(well)
    )


def _most_leap(chart: Chart) -> Bools:
    """Participations in rounds in which most clients' losses leap: then it is nobody's own rate."""
    sharp = (chart.shared(early_jumps) > DOUBLED) | chart.shared(_overflown)
    return sharp & ~blamed(chart, sharp)


def _other_inputs(chart: Chart) -> Bools:
    """A first gradient, or a loss on receipt, far from the cohort's: then the rows are odd, not the rate (FL506)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        gradients = against_cohort(chart, np.log(chart.shared(first_gradients)))
        losses = against_cohort(chart, np.log(received_losses(chart)))
    return (gradients > FIVEFOLD) | ((losses > FIVEFOLD) & ~np.isfinite(gradients))


def _overflown(chart: Chart) -> Bools:
    """Losses that grew beyond anything before they were lost: a NaN in the rows, or in the update, comes without
    that."""
    losses, beginning = chart.shared(step_losses), chart.shared(small_loss) / NEARLY_NONE
    if not losses.shape[1] or not beginning:
        return np.zeros(len(losses), dtype=bool)
    lost = ~finite_update(chart) & ~np.isnan(chart.participations.bad_step) & np.isfinite(losses[:, 0])
    largest = np.where(np.isfinite(losses), losses, -np.inf).max(axis=1)
    return np.asarray(lost & (largest > OVERFLOWS * beginning))


def _of_client(chart: Chart, client: int, rows: Ints) -> Finding:
    table, rate, jumps = chart.participations, chart.shared(rates), chart.shared(loss_jumps)
    first, name = int(rows[0]), chart.clients[client]
    known = rate.low_away[rows][np.isfinite(rate.low_away[rows])]
    ratio = float(np.exp(known[0])) if known.size else math.inf
    jump = float(np.exp(np.nanmax(jumps[rows]))) if np.isfinite(jumps[rows]).any() else math.nan
    moved = "for its gradient and steps" if rate.by_gradient else "for its steps"
    long = f"is {factor(ratio)} as long as the cohort's {moved}" if known.size else "is not finite"
    losses = f"; its loss grew to {factor(jump)} what it was on receipt inside its own steps" if jump > 1.1 else ""
    return write(
        RULE,
        Severity.CRITICAL,
        f"client {name}'s update of round {table.round[first]} {long}{losses}: its learning rate is far too high",
        grade=Grade.ACCUSED,
        rounds=table.round[rows],
        clients=(name,),
        evidence={
            "rate_ratio": short(ratio),
            "score": short(known[0] / rate.spread) if known.size and rate.spread > 0 else None,
            "loss_jump_ratio": short(jump),
            "by_gradient": rate.by_gradient,
            "participations": len(rows),
        },
        next=(
            Action(f"compare client {name}'s learning rate with the others'"),
            Action(see_client(name)),
            Action("train.clip = 1.0, or an aggregator that leaves extremes out", safe=False),
        ),
    )


def _of_run(chart: Chart) -> Iterator[Finding]:
    """Most clients' losses rise or jump inside their participations, in many rounds."""
    losses, jumps, floor = received_losses(chart), chart.shared(loss_jumps), chart.shared(small_loss)
    late = np.fmax(chart.shared(late_losses), floor)
    overflown = chart.shared(_overflown) & np.isfinite(losses)
    rising = (late > RISEN * np.fmax(losses, floor)) | overflown
    sharp = (jumps > LEAPT) | overflown
    counted = (np.isfinite(losses) & ~np.isnan(chart.shared(late_losses))) | overflown
    bad = [n for n, rows in chart.cohorts if counted[rows].sum() > 1 and rising[rows].sum() * 2 > counted[rows].sum()]
    looked = sum(bool(counted[rows].sum() > 1) for _, rows in chart.cohorts)
    leapt = [n for n, rows in chart.cohorts if (sharp[rows] & counted[rows]).sum() * 2 > max(counted[rows].sum(), 2)]
    many = MOST_ROUNDS if _learns_all_the_same(chart) else MANY_ROUNDS
    if len(bad) < max(2, many * looked):
        bad = sorted({*bad, *leapt}) if leapt and _never_learnt(chart) else []
    if not bad or any(number < bad[0] for number in chart.shared(overshoots)):
        return  # what the server overshot, clients cannot train on with any rate: FL402 tells of it
    share = float(rising[counted].mean())
    worst = float(np.exp(median(jumps[(rising | sharp) & np.isin(chart.participations.round, bad)])))
    lasting = "; the model has not learnt since" if _never_learnt(chart) else ""
    yield write(
        RULE,
        Severity.CRITICAL,
        f"most clients' losses rose inside their own training in {len(bad)} of {looked} rounds (first in round "
        f"{bad[0]}), "
        f"typically to {factor(worst)} their start{lasting}: the learning rate is too high for all",
        grade=Grade.ACCUSED,
        rounds=bad,
        evidence={
            "rising_ratio": short(share),
            "rounds": len(bad),
            "of_rounds": looked,
            "typical_jump_ratio": short(worst),
        },
        next=changing(
            "lower the learning rate (train.lr) to a third or a tenth",
            "clip gradients: train.clip = 1.0",
        ),
    )


def _learns_all_the_same(chart: Chart) -> bool:
    """The loss has been halved at least and is about the best it ever was: small batches alone make losses rise and
    fall inside a participation."""
    try:
        curve = learning_curve(chart, LAST).finite
    except CannotSee:
        return False
    if len(curve) <= LAST:
        return False
    last = curve.level(-LAST, None)
    return last < HALVED * beginning(chart, curve) and last < NEAR_BEST * float(curve.values.min())


def _never_learnt(chart: Chart) -> bool:
    """The loss is still nearly what it was before the first step, and the clients' on receipt as well, where it is
    known: leaps that are got over are no matter, nor what is wrong with the evaluation's rows."""
    try:
        curve = learning_curve(chart, 2).finite
    except CannotSee:
        return False
    own = chart.shared(received).finite
    if len(own) > 1 and own.level(-LAST, None) <= NOT_LEARNT * own.values[0]:
        return False
    return len(curve) > 1 and curve.level(-LAST, None) > NOT_LEARNT * beginning(chart, curve)


RULE = WrittenRule(
    code="FL412",
    name="learning rate too high",
    page=__doc__ or "",
    look=_look,
    needs=frozenset({Sight.UPDATES}),
    explains=frozenset(
        {"FL402", "FL403", "FL404", "FL405", "FL406", "FL407", "FL408", "FL409", "FL410", "FL411", "FL413", "FL414"}
        | {"FL501", "FL503", "FL504"}
    )
    | SCORED_CODES,
)
