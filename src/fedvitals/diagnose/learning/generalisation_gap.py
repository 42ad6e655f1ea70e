"""Generalisation gap.

Sees: the evaluation's loss rising from its best while the loss of the same models on the clients' own training rows, on
receipt, goes on falling; or standing at several times that loss.

Matters: the model learns the clients' rows by heart. Later rounds make it worse on rows that it has not seen.

Evidence: the evaluation's best and last loss, the clients' loss at those rounds, and the ratio at the end.

False alarms: losses on receipt are the global model's, before any local training, so clients with one-sided data do not
look overfitted by drifting. The rise is asked to be a twentieth of the best, six times the noise, and seen as a trend
by Mann and Kendall's test at one in a thousand. A gap without a rise is information.

Do: stop at the best round (fedvitals keeps every model), fewer epochs, weight decay, dropout, more rows.

Papers: none.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.learning.curves import Curve, evaluated, received, trend
from fedvitals.diagnose.rule import CannotSee, Sight, WrittenRule
from fedvitals.diagnose.writing import factor, short, write
from fedvitals.vocabulary import Action, Finding, Grade, Severity

LEAST = 8  # rounds
LAST = 3
RISEN = 1.05  # times the best
NOISES = 6.0
RISES = 3.09  # Mann and Kendall's score, one-sided at one in a thousand
APART = 4.0  # times the clients' loss, from which on there is something to be gained by generalising
SHORT = 0.3  # of the loss at the start: below it a gap is no matter


def _look(chart: Chart) -> Iterator[Finding]:
    judged, own = chart.shared(evaluated).finite, chart.shared(received).finite
    if len(judged) < LEAST or len(own) < LEAST:
        raise CannotSee(f"it takes {LEAST} rounds with an evaluation and losses of clients")
    best = int(np.argmin(judged.values))
    end, trained = judged.level(-LAST, None), own.level(-LAST, None)
    rose = _rose(judged, best, end)
    falls = trained < float(np.median(own.values[: max(best, 1) + 1][-LAST:]))
    ratio = end / trained if trained > 0 else np.inf
    if rose and falls:
        yield _found(judged, best, end, trained, Severity.WARNING)
    elif ratio > APART and end > SHORT * judged.values[0]:
        yield _found(judged, best, end, trained, Severity.INFO)


def _rose(judged: Curve, best: int, end: float) -> bool:
    rise, after = end - float(judged.values[best]), judged.values[best:]
    return bool(rise > (RISEN - 1) * judged.values[best] and rise > NOISES * judged.noise and trend(after) > RISES)


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
