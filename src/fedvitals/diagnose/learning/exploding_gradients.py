"""Exploding gradients.

Sees: norms of sampled gradients, layer by layer (of updates, where none were sampled). Over rounds: the cohort's median
grows a hundredfold over what it was in the first rounds. Across depth: the first layers' gradients are a thousand times
the last one's, in most participations.

Matters: steps become a matter of luck; the next thing seen is a loss that jumps, then NaN.

Evidence: the median norm at first and at its largest, in which round; the ratio across depth.

False alarms: medians over clients, so that one client (FL412) does not make it; the factors are ones that no healthy
run comes near (norms fall, or grow a few times while a model is still finding its way). A loss that falls all the same
takes it down to information.

Do: clip gradients (train.clip = 1.0), a lower learning rate, normalisation layers, another initialisation.

Papers: Pascanu, Mikolov and Bengio 2013, On the difficulty of training recurrent neural networks (arXiv:1211.5063).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.learning.curves import beginning, learning_curve
from fedvitals.diagnose.learning.depths import Depths, depths
from fedvitals.diagnose.robust import median
from fedvitals.diagnose.rule import CannotSee, Sight, WrittenRule
from fedvitals.diagnose.writing import changing, factor, short, write
from fedvitals.store.table import Floats
from fedvitals.vocabulary import Finding, Grade, Severity

GROWS = 100.0  # times the norm of the first rounds
FIRST = 3  # rounds that say what it was
ACROSS = 1000.0  # first layers' over the last one's
DEEP = 3  # matrices, from which on there is a depth to speak of
LEARNT = 0.5  # of the first loss


def _look(chart: Chart) -> Iterator[Finding]:
    seen = chart.shared(depths)
    if seen is None or not seen.known.any():
        raise CannotSee("neither gradients nor updates of any matrix were seen")
    by_round = _medians(chart, np.sqrt((seen.sizes**2).sum(axis=1)))
    began = median(by_round[:FIRST])
    top = int(np.nanargmax(np.where(np.isfinite(by_round), by_round, -1.0)))
    if began > 0 and by_round[top] > GROWS * began and top >= FIRST:
        number = chart.cohorts[top][0]
        grew = by_round[top] / began
        why = f"clients' {seen.of} grew to {factor(grew)} what they were in the first rounds (in round {number})"
        yield _found(chart, seen, why, {"growth_ratio": short(grew)}, [number], ())
        return
    yield from _across(chart, seen)


def _across(chart: Chart, seen: Depths) -> Iterator[Finding]:
    if seen.sizes.shape[1] < DEEP:
        return
    last = seen.some()
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = median(last[:, :-1].max(axis=1) / last[:, -1])
    if not ratio > ACROSS:
        return
    layer = seen.names[int(np.argmax(np.median(last[:, :-1], axis=0)))]
    why = f"{seen.of} of {layer} are typically {factor(ratio)} those of the last layer: they explode on their way back"
    yield _found(chart, seen, why, {"depth_ratio": short(ratio)}, [], (layer,))


def _medians(chart: Chart, values: Floats) -> Floats:
    return np.array([median(values[rows]) for _, rows in chart.cohorts])


def _found(
    chart: Chart, seen: Depths, why: str, evidence: dict[str, object], rounds: list[int], layers: tuple[str, ...]
) -> Finding:
    learns = _learns(chart)
    return write(
        RULE,
        Severity.INFO if learns else Severity.WARNING,
        why,
        grade=Grade.ACCUSED,
        rounds=rounds,
        layers=layers,
        evidence={**evidence, "of": seen.of, "loss_falls": learns},
        next=changing(
            "clip gradients: train.clip = 1.0",
            "a lower learning rate, normalisation layers, or another initialisation",
        ),
    )


def _learns(chart: Chart) -> bool:
    try:
        curve = learning_curve(chart, 2).finite
    except CannotSee:
        return False
    return len(curve) > 1 and bool(curve.values[-1] < LEARNT * beginning(chart, curve))


RULE = WrittenRule(
    code="FL407",
    name="exploding gradients",
    page=__doc__ or "",
    look=_look,
    needs=frozenset({Sight.UPDATES}),
    explains=frozenset({"FL402", "FL403", "FL404", "FL410"}),
)
