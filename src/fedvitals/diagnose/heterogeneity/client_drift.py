"""Client drift.

Sees: clients whose updates of the same round pull apart. The length of the averaged step over the typical length of an
update (1: all alike; one over the root of the cohort's size: no more alike than chance) and the median cosine of an
update to the others' mean; and how both went over the run.

Matters: what each client learns is undone by the others; rounds bring little, and more epochs a round make it worse.

Evidence: cosine and step at first and last, the ratio expected by chance, epochs.

False alarms: updates that disagree are the rule when a run has converged, and usual with one-sided data. So it is
information, and a warning only when updates have no direction in common (cosine at or below that of chance in the last
half) while the loss does not fall any more and is not low either.

Do: fewer epochs or steps a round, a proximal term (train.proximal), a server that averages more, SCAFFOLD.

Papers: Karimireddy et al. 2020, SCAFFOLD (arXiv:1910.06378); Li et al. 2020, FedProx (arXiv:1812.06127).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.learning.curves import beginning, learning_curve, steps_of_model, trend
from fedvitals.diagnose.robust import median
from fedvitals.diagnose.rule import CannotSee, Sight, WrittenRule
from fedvitals.diagnose.writing import changing, short, times, write
from fedvitals.store.table import Floats, Ints
from fedvitals.vocabulary import Finding, Grade, Severity

LEAST = 8  # rounds
SMALLEST = 4  # clients a round
APART = 0.25  # cosine to the others' mean, below which more is across than along
FALLS = -1.645  # Mann and Kendall's score, one-sided at one in twenty
SHORT = 0.5  # of the loss at the start, or of guessing


@dataclass(frozen=True, slots=True, eq=False)
class Agreement:
    """A round: the median cosine of an update to the others' mean, and the averaged step over a typical update."""

    rounds: Ints
    cosines: Floats
    steps: Floats
    sizes: Floats


def agreement(chart: Chart) -> Agreement:
    """Of the rounds with enough clients."""
    table = chart.participations
    moved = chart.shared(steps_of_model)
    kept = [(number, rows) for number, rows in chart.cohorts if np.isfinite(table.cosine[rows]).sum() >= SMALLEST]
    return Agreement(
        rounds=np.array([number for number, _ in kept], dtype=np.int64),
        cosines=np.array([median(table.cosine[rows]) for _, rows in kept]),
        steps=np.array([_ratio(moved.get(number, np.nan), median(table.update_norm[rows])) for number, rows in kept]),
        sizes=np.array([float(len(rows)) for _, rows in kept]),
    )


def _ratio(step: float, update: float) -> float:
    """NaN where most updates are nothing at all: they have no length to compare with."""
    return step / update if update > 0 else float("nan")


def _look(chart: Chart) -> Iterator[Finding]:
    seen = chart.shared(agreement)
    if len(seen.rounds) < LEAST:
        raise CannotSee(f"it takes {LEAST} rounds of {SMALLEST} clients whose updates' angles are known")
    third = max(len(seen.rounds) // 3, 1)
    began, ends = median(seen.cosines[:third]), median(seen.cosines[-third:])
    curve_stands, learnt = _stands(chart)
    if not ends < APART or (learnt and began >= APART):  # who has learnt has little left to agree on
        return
    by_chance = 1 / np.sqrt(max(median(seen.sizes), 1.0))
    grave = curve_stands and ends <= 0
    step = median(seen.steps[-third:])
    epochs = median(chart.participations.epochs)
    step_text = (
        f"; the averaged step is {step:.0%} of an update (chance gives {by_chance:.0%})" if np.isfinite(step) else ""
    )
    yield write(
        RULE,
        Severity.WARNING if grave else Severity.INFO,
        f"clients pull apart: an update's cosine to the others went from {began:.2f} in the first rounds to "
        f"{ends:.2f} in the "
        f"last{step_text}" + (f", with {times(round(epochs), 'epoch')} a round" if np.isfinite(epochs) else ""),
        grade=Grade.ACCUSED if grave else Grade.SUSPECT,
        rounds=seen.rounds[-third:],
        evidence={
            "cosine_first": short(began),
            "cosine_last": short(ends),
            "step_to_update_ratio": short(step),
            "by_chance_ratio": short(by_chance),
            "loss_stands": curve_stands,
        },
        next=changing(
            "fewer epochs a round (train.epochs)",
            "a proximal term: train.proximal = 0.01",
        ),
    )


def _stands(chart: Chart) -> tuple[bool, bool]:
    """Whether the loss has stopped to fall while it is high, and whether it is low."""
    try:
        curve = learning_curve(chart, LEAST).finite
    except CannotSee:
        return False, False
    half = curve.values[len(curve) // 2 :]
    high = len(half) > 2 and bool(np.median(half[-3:]) > SHORT * beginning(chart, curve))
    return high and trend(half) > FALLS, not high


RULE = WrittenRule(
    code="FL501",
    name="client drift",
    page=__doc__ or "",
    look=_look,
    needs=frozenset({Sight.UPDATES}),
    explains=frozenset({"FL404", "FL406"}),
)
