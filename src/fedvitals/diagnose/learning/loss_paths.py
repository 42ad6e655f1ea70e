"""Whether a client's losses went another way, inside one participation, than in the participations before it."""

from __future__ import annotations

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.learning.rates import step_losses
from fedvitals.store.table import Floats, Ints

BEFORE = 4  # participations that say what is usual
LEAST_BEFORE = 2
FROM_STEP = 2  # the first two steps' losses are those of the received model
LEAST_LOSS = 1e-5  # below this a loss is as good as zero


def unusual_path(chart: Chart, history: Ints, place: int) -> float:
    """How far the losses of a client's participation at this place of its history lie from the median of those before,
    as a multiple of how far those lie from each other (mean squares of logarithms); NaN where that is not known."""
    before = history[max(0, place - BEFORE) : place]
    if len(before) < LEAST_BEFORE or place >= len(history):
        return float("nan")
    paths = _paths(chart, np.append(before, history[place]))
    known = np.isfinite(paths).all(axis=0)
    if not known.any():
        return float("nan")
    past, now = paths[:-1, known], paths[-1, known]
    usual = np.mean([_apart(one, np.delete(past, number, axis=0)) for number, one in enumerate(past)])
    return float(_apart(now, past) / usual) if usual > 0 else float("nan")


def _paths(chart: Chart, rows: Ints) -> Floats:
    """[rows, steps]: logarithms of the losses over the loss on receipt."""
    losses = chart.shared(step_losses)[rows, FROM_STEP:]
    with np.errstate(divide="ignore", invalid="ignore"):
        first = np.log(chart.participations.first_loss[rows])[:, None]
        paths: Floats = np.log(np.maximum(losses, LEAST_LOSS)) - first
    return paths


def _apart(one: Floats, others: Floats) -> float:
    return float(np.mean((one - np.median(others, axis=0)) ** 2))
