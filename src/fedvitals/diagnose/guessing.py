"""What guessing costs: the measure of a run that begins with a trained model, which has learnt before."""

from __future__ import annotations

import math

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.robust import median

LEAST_OF_WRONG = 0.99 * math.log(2)  # the cross-entropy of a row that is taken for another, but for rounding
TRAINED = 0.5  # of the loss of guessing: a model that begins with less has been trained


def chance(chart: Chart) -> float | None:
    """The cross-entropy of guessing: the logarithm of how many classes the last layer has; None when it is unknown."""
    layout = chart.updates.layout if chart.updates is not None else next(iter(chart.layouts), None)
    if layout is None or layout.unit_layer is None:
        return None
    classes = layout.layers[layout.unit_layer].shape[0]
    return math.log(classes) if classes > 1 else None


def may_be_cross_entropy(chart: Chart) -> bool:
    """Not where an evaluation takes more rows for others than its loss could pay for."""
    return not any(loss < LEAST_OF_WRONG * (1 - accuracy) for loss, accuracy in _judged(chart))


def seems_cross_entropy(chart: Chart) -> bool:
    """Only where evaluations tell both losses and accuracies: of another loss, a regression's say, nobody knows what
    guessing costs."""
    return bool(_judged(chart)) and may_be_cross_entropy(chart)


def _judged(chart: Chart) -> list[tuple[float, float]]:
    return [(one.loss, one.accuracy) for one in chart.judged if one.loss is not None and one.accuracy is not None]


def goes_on(chart: Chart) -> float:
    """The loss of guessing, where the run begins with a model that is far better: its own first loss then says nothing
    of how much there is to learn. NaN where it begins anew, or nobody knows."""
    guess, first = chance(chart), chart.participations.first_loss[chart.cohorts[0][1]] if chart.cohorts else np.empty(0)
    trained = guess is not None and median(first) < TRAINED * guess and seems_cross_entropy(chart)
    return guess if trained and guess is not None else math.nan
