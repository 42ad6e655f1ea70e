"""Gradients that pile up over steps, as sampled norms or a whole run's updates show it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.coded import lossy_codec
from fedvitals.diagnose.cohorts import received_losses
from fedvitals.diagnose.learning.rates import loss_jumps, rates
from fedvitals.diagnose.robust import median
from fedvitals.diagnose.writing import factor, short
from fedvitals.store.table import Floats
from fedvitals.vocabulary import JSONObject

LEAST_STEPS = 4  # of plain SGD that would reach at most lr * steps * gradient, piled 2.5 times that
ABOVE = 1.5  # the configured rate: plain SGD does not get there while the loss falls
LINEAR = 0.5  # slope of log norm over log step: sums of like gradients have 1, plain ones 0 or less
LEAST_SAMPLES = 3  # sampled steps of a participation that make a slope
LEAST_SEEN = 4  # participations
GROWN = math.log(1.3)  # a loss that grows on its way makes gradients grow, and updates long, by itself
OFTEN = 0.25  # of the participations must be free of that


@dataclass(frozen=True, slots=True)
class Piled:
    """What says so of a whole run."""

    why: str
    evidence: JSONObject


def growth(chart: Chart) -> Floats:
    """For each participation the slope of its sampled gradients' log norm over the log of the step; NaN: too few."""
    found = np.full(len(chart.participations), np.nan)
    gradients = chart.gradients
    if gradients is None:
        return found
    norms = np.sqrt(np.nansum(gradients.norms.astype(np.float64) ** 2, axis=1))
    seen = (gradients.row >= 0) & (norms > 0) & np.isfinite(norms)
    row, x, y = gradients.row[seen], np.log1p(gradients.step[seen]), np.log(norms[seen])
    size = len(found)
    count = np.bincount(row, minlength=size)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean_x, mean_y = np.bincount(row, x, size) / count, np.bincount(row, y, size) / count
        spread = np.bincount(row, (x - mean_x[row]) ** 2, size)
        slope = np.bincount(row, (x - mean_x[row]) * (y - mean_y[row]), size) / spread
    return np.where((count >= LEAST_SAMPLES) & (spread > 0), slope, np.nan)


def of_run(chart: Chart) -> Piled | None:
    """What shows that most clients' gradients pile up, if anything does. Only participations whose loss fell are asked:
    where it rises, gradients grow by themselves."""
    if not len(chart.participations):
        return None
    fell = (chart.participations.last_loss < received_losses(chart)) & ~(loss_jumps(chart) > GROWN)
    if fell.mean() < OFTEN:
        return None
    return _by_growth(chart, fell) or _by_configured_rate(chart, fell)


def _by_growth(chart: Chart, fell: np.ndarray) -> Piled | None:
    slopes = growth(chart)[fell]
    slopes = slopes[np.isfinite(slopes)]
    typical = median(slopes)
    if len(slopes) < LEAST_SEEN or not typical > LINEAR:
        return None
    seen = f"as step^{typical:.2f}, in {len(slopes)} participations"
    why = f"sampled gradients grow with the step while the loss falls ({seen})"
    return Piled(why, {"growth": short(typical), "participations": len(slopes)})


def _by_configured_rate(chart: Chart, fell: np.ndarray) -> Piled | None:
    configured = _plain_rate(chart)
    rate = chart.shared(rates)
    if configured is None or not rate.by_gradient:
        return None
    asked = fell & np.isfinite(rate.log) & (chart.participations.steps >= LEAST_STEPS)
    ratios = np.exp(rate.log[asked]) / configured
    if len(ratios) < LEAST_SEEN or not median(ratios) > ABOVE:
        return None
    why = (
        f"updates are typically {factor(median(ratios))} as long as the configured learning rate of "
        f"{configured:g} can make "
        f"them (in {len(ratios)} participations whose loss fell)"
    )
    return Piled(why, {"rate_ratio": short(median(ratios)), "participations": len(ratios)})


def _plain_rate(chart: Chart) -> float | None:
    """The learning rate of the engine's own plain SGD; None for whatever else trained, such as Adam in a user's loop,
    and where a codec rounds updates, or sends what it owed: they may then be longer than any training makes them."""
    if lossy_codec(chart.run.config) is not None:
        return None
    train: Any = chart.run.config.get("train")
    if "executor" not in chart.run.environment or not isinstance(train, dict) or train.get("momentum", 1):
        return None
    lr = train.get("lr")
    return float(lr) if isinstance(lr, int | float) and lr > 0 and math.isfinite(lr) else None
