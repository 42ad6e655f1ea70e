"""Plateau.

Sees: a loss that has stopped to fall well short of what is there to learn. Over the second half of the run, Mann and
Kendall's test finds no fall, and the last quarter is not better than the one before by more than the noise; and the
loss is still above half of what it began with, or of guessing where the run began with a trained model.

Matters: rounds go on, cost time and traffic, and change nothing.

Evidence: the level, the start, the test's score, and what the clients' own training still gains, which tells a model
that cannot do better from one that is not allowed to.

False alarms: the test is one-sided at one in twenty for a series without trend, so a slow but steady fall is not a
plateau. A hard task may simply end at such a level: it is a warning only when the model is no better than guessing, or
clients still halve their loss on their own rows, else information.

Do: near guessing: look at the initialisation (FL401), dead layers (FL409), the learning rate. Where clients still gain:
less drift (fewer epochs, a proximal term), a lower learning rate.

Papers: Mann 1945, Nonparametric tests against trend.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.coded import advice
from fedvitals.diagnose.cohorts import received_losses
from fedvitals.diagnose.guessing import chance
from fedvitals.diagnose.learning.curves import Curve, beginning, learning_curve, trend
from fedvitals.diagnose.robust import median
from fedvitals.diagnose.rule import WrittenRule
from fedvitals.diagnose.writing import short, write
from fedvitals.vocabulary import Action, Finding, Grade, Severity

LEAST = 10  # rounds
FALLS = -1.645  # Mann and Kendall's score of a fall, one-sided at one in twenty
LITTLE, NOTHING = 0.02, 0.002  # of the level: a gain that is none without a trend, and with one
SHORT = 0.5  # of the loss at the start, or of guessing: above it, less than half is learnt
GUESSING = 0.9  # of the loss of guessing
HALVES = 0.5  # of its loss on receipt: what a client's own training gets below


def _look(chart: Chart) -> Iterator[Finding]:
    curve = learning_curve(chart, LEAST).finite
    if len(curve) < LEAST or not _stands(curve):
        return
    level, start = curve.level(-len(curve) // 4, None), float(curve.values[0])
    guess = chance(chart)
    guessing = guess is not None and GUESSING * guess < level < 2 * guess
    base = beginning(chart, curve)
    if not (level > SHORT * base or guessing) or level > 2 * base:
        return
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = median(chart.participations.last_loss / received_losses(chart))
    grave = guessing or gain < HALVES
    rounds = curve.rounds[len(curve) // 2 :]
    yield write(
        RULE,
        Severity.WARNING if grave else Severity.INFO,
        f"the {curve.of} stands at {level:.4g} since round {rounds[0]} (it began at {start:.4g}"
        + (f"; guessing has {guess:.4g}" if guessing else "")
        + ")"
        + (f"; clients' own training still takes their loss to {gain:.0%}" if gain < HALVES else ""),
        grade=Grade.ACCUSED if grave else Grade.SUSPECT,
        rounds=rounds,
        evidence={
            "level": short(level),
            "start": short(start),
            "guessing": short(guess) if guess is not None else None,
            "trend_score": short(trend(curve.values[len(curve) // 2 :])),
            "own_training_keeps_ratio": short(gain),
        },
        next=(
            Action("fedvitals explain FL404"),
            *advice(chart),
            Action("another learning rate; fewer epochs a round where clients drift apart", safe=False),
        ),
    )


def _stands(curve: Curve) -> bool:
    """No fall over the second half, by the test and by its level."""
    half, quarter = curve.values[len(curve) // 2 :], max(len(curve) // 4, 2)
    gained = float(np.median(half[:quarter]) - np.median(half[-quarter:]))
    level = abs(float(np.median(half)))
    return gained < NOTHING * level or (trend(half) > FALLS and gained < max(2 * curve.noise, LITTLE * level))


RULE = WrittenRule(code="FL404", name="plateau", page=__doc__ or "", look=_look, explains=frozenset({"FL406"}))
