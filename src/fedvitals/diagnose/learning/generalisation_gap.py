"""Generalisation gap.

Sees: the evaluation's loss rising from its best while the loss of the same models on the clients' own training rows, on
receipt, goes on falling; or standing at several times that loss; or never better than guessing while the clients' loss
is halved.

Matters: the model learns the clients' rows by heart. Later rounds make it worse on rows that it has not seen. Where the
evaluation never got better than guessing, nothing can be told from it.

Evidence: the evaluation's best and last loss, the clients' loss at those rounds, the ratio at the end, and the loss of
guessing.

False alarms: losses on receipt are the global model's, before any local training, so clients with one-sided data do not
look overfitted by drifting. The rise is asked to be a twentieth of the best, six times the noise, and seen as a trend
by Mann and Kendall's test at one in a thousand. A gap without a rise is information, and none where the clients train
by another loss than is evaluated.

Do: where the evaluation never got better than guessing, compare labels and scaling of its rows with the clients', and
look at which model is evaluated. Otherwise stop at the best round (fedvitals keeps every model), fewer epochs, weight
decay, dropout, more rows.

Papers: none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.guessing import chance
from fedvitals.diagnose.learning.curves import (
    ALIKE,
    Curve,
    beginning,
    evaluated,
    measure_alike,
    received,
    trend,
)
from fedvitals.diagnose.rule import CannotSee, Sight, WrittenRule
from fedvitals.diagnose.writing import factor, short, write
from fedvitals.vocabulary import Action, Finding, Grade, Severity

LEAST = 8  # rounds
LAST = 3
RISEN = 1.05  # times the best
NOISES = 6.0
RISES = 3.09  # Mann and Kendall's score, one-sided at one in a thousand
APART = 4.0  # times the clients' loss, from which on there is something to be gained by generalising
SHORT = 0.3  # of the loss at the start, or of guessing: below it a gap is no matter
GUESSING = 0.9  # of the loss of guessing: what was never below it has seen nothing of what is learnt
HALVED = 0.5  # of the clients' first loss: they learn


def _look(chart: Chart) -> Iterator[Finding]:
    judged, own = chart.shared(evaluated).finite, chart.shared(received).finite
    if len(judged) < LEAST or len(own) < LEAST:
        raise CannotSee(f"it takes {LEAST} rounds with an evaluation and losses of clients")
    best = int(np.argmin(judged.values))
    end, trained = judged.level(-LAST, None), own.level(-LAST, None)
    rose = _rose(judged, best, end)
    falls = trained < float(np.median(own.values[: max(best, 1) + 1][-LAST:]))
    ratio = end / trained if trained > 0 else np.inf
    if _blind(chart, judged, own):
        yield _not_judged(judged, own, chance(chart))
    elif rose and falls:
        yield _found(judged, best, end, trained, Severity.WARNING)
    elif ratio > APART and end > SHORT * beginning(chart, judged) and _by_one_loss(chart, own):
        yield _found(judged, best, end, trained, Severity.INFO)


def _rose(judged: Curve, best: int, end: float) -> bool:
    rise, after = end - float(judged.values[best]), judged.values[best:]
    return bool(rise > (RISEN - 1) * judged.values[best] and rise > NOISES * judged.noise and trend(after) > RISES)


def _by_one_loss(chart: Chart, own: Curve) -> bool:
    """The clients' loss is the evaluation's, as far as can be told: like it in the first rounds, or at first that of
    guessing."""
    guess = chance(chart)
    return chart.shared(measure_alike) or guess is None or _near(float(own.values[0]), guess)


def _near(loss: float, guess: float) -> bool:
    return loss > 0 and abs(math.log(loss / guess)) < ALIKE


def _blind(chart: Chart, judged: Curve, own: Curve) -> bool:
    """The evaluation was never better than guessing, while the clients, who began there, have halved their loss."""
    guess = chance(chart)
    if guess is None or not _near(float(own.values[0]), guess):
        return False
    return bool(judged.values.min() > GUESSING * guess and own.level(-LAST, None) < HALVED * own.values[0])


def _not_judged(judged: Curve, own: Curve, guess: float | None) -> Finding:
    least, end = float(judged.values.min()), judged.level(-LAST, None)
    began, trained = float(own.values[0]), own.level(-LAST, None)
    return write(
        RULE,
        Severity.WARNING,
        f"the evaluation loss was never below {least:.4g} (guessing has {guess:.4g}) and is {end:.4g}, while on the "
        f"clients' rows it fell from {began:.4g} to {trained:.4g}: the evaluation's rows are labelled or scaled "
        "otherwise than the clients', or another model is evaluated than is trained",
        grade=Grade.ACCUSED,
        rounds=judged.rounds,
        evidence={
            "best": short(least),
            "best_round": int(judged.rounds[np.argmin(judged.values)]),
            "end": short(end),
            "clients_loss": short(trained),
            "ratio": short(end / trained if trained > 0 else float("inf")),
            "guessing": short(guess) if guess is not None else None,
        },
        next=(
            Action("compare labels, their order and the scaling of the evaluation's rows with the clients'"),
            Action("look at which model is evaluated, and whether it has the averaged normalisation statistics"),
        ),
    )


def _found(judged: Curve, best: int, end: float, trained: float, severity: Severity) -> Finding:
    least, since = float(judged.values[best]), int(judged.rounds[best])
    ratio = end / trained if trained > 0 else float("inf")
    why = f"the evaluation loss is {end:.4g}, {factor(ratio)} the {trained:.4g} of the same models on the clients' rows"
    if severity is Severity.WARNING:
        why = f"the evaluation loss rose from {least:.4g} in round {since} to {end:.4g} while on the clients' rows "
        why += f"it fell to {trained:.4g}: the model learns them by heart"
    return write(
        RULE,
        severity,
        why,
        grade=Grade.ACCUSED,
        rounds=[int(one) for one in judged.rounds if one >= since],
        evidence={
            "best": short(least),
            "best_round": since,
            "end": short(end),
            "clients_loss": short(trained),
            "ratio": short(ratio),
        },
        next=(
            Action(f"take the model of round {since}: it is kept in the run's blobs"),
            Action("fewer epochs, weight decay, dropout, or more rows", safe=False),
        ),
    )


RULE = WrittenRule(
    code="FL411",
    name="generalisation gap",
    page=__doc__ or "",
    look=_look,
    needs=frozenset({Sight.EVALUATIONS, Sight.LOSSES}),
    explains=frozenset({"FL404", "FL406"}),
)
