"""Oscillation.

Sees: a loss of the global model that goes up and down from round to round without settling. Its swings, the sums of
what it rises and what it falls in the second half of the run, are alike; a typical rise is a tenth at least of all
progress made (from the loss of guessing on, where the run began with a trained model), and it rises in a third of the
rounds or more.

Matters: steps are too large for the place the model has come to: it jumps across what it looks for, and the round at
which one stops decides how good it is.

Evidence: how often it rises, how much, and against the progress made.

False alarms: a few clients a round with one-sided data make a loss swing as well: there it is reported as information.
Noise at the bottom of a converged run is too small against the progress to count.

Do: a lower learning rate, server momentum or a smaller server learning rate, more clients a round.

Papers: Charles and Konecny 2020, On the outsized importance of learning rates in local update methods
(arXiv:2007.00878).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.learning.curves import beginning, learning_curve
from fedvitals.diagnose.rule import WrittenRule
from fedvitals.diagnose.writing import changing, short, write
from fedvitals.store.table import Floats
from fedvitals.vocabulary import Finding, Grade, Severity

LEAST = 8  # rounds
RISES = 1 / 3  # share of the steps
BALANCE = 0.5  # what it rises, over what it falls, or the other way
SWING = 0.1  # of the progress made
MOST_OF = 0.75  # share of the clients that took part in a typical round, from which on chance is no excuse


def _look(chart: Chart) -> Iterator[Finding]:
    curve = learning_curve(chart, LEAST).finite
    if len(curve) < LEAST:
        return
    half = curve.values[len(curve) // 2 :]
    progress = beginning(chart, curve) - float(curve.values.min())
    rises, balance, swing = _swings(half)
    if rises < RISES or balance < BALANCE or not swing > SWING * progress > 0:
        return
    whole = _share_a_round(chart) >= MOST_OF
    rounds = curve.rounds[len(curve) // 2 :]
    yield write(
        RULE,
        Severity.WARNING if whole else Severity.INFO,
        f"in rounds {rounds[0]} to {rounds[-1]} the {curve.of} rose in {rises:.0%} of the steps, typically by "
        f"{swing:.3g}, "
        f"which is {swing / progress:.0%} of all progress made"
        + ("" if whole else "; few clients a round may be the reason"),
        grade=Grade.ACCUSED if whole else Grade.SUSPECT,
        rounds=rounds,
        evidence={"rising_ratio": short(rises), "typical_rise": short(swing), "progress": short(progress)},
        next=changing(
            "lower the learning rate (train.lr), or the server's (server.lr)",
            "more clients a round",
        ),
    )


def _swings(values: Floats) -> tuple[float, float, float]:
    """Share of steps that rise, balance of rise and fall, typical rise."""
    steps = np.diff(values)
    up, down = float(steps[steps > 0].sum()), float(-steps[steps < 0].sum())
    balance = min(up, down) / max(up, down) if max(up, down) > 0 else 0.0
    return float((steps > 0).mean()), balance, float(np.median(steps[steps > 0])) if (steps > 0).any() else 0.0


def _share_a_round(chart: Chart) -> float:
    """Of all clients, how many take part in a typical round."""
    sizes = [len(rows) for _, rows in chart.cohorts]
    return float(np.median(sizes)) / max(len(chart.clients), 1) if sizes else 1.0


RULE = WrittenRule(
    code="FL403", name="oscillation", page=__doc__ or "", look=_look, explains=frozenset({"FL404", "FL406"})
)
