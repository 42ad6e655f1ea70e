"""Participations of clients that have nothing left to learn: their updates are rounding, and accuse nobody."""

from __future__ import annotations

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.store.table import Bools

NOTHING_LEFT = 1e-5  # of the loss that the run began with: gradients are as small, and float32 rounds to 6e-8


def all_learnt(chart: Chart) -> Bools:
    """Whether the client's own loss was next to nothing while it trained. Who trains on spoilt rows, or not at all and
    says what its loss is, has one."""
    table = chart.participations
    first = table.first_loss[chart.cohorts[0][1]] if chart.cohorts else np.empty(0)
    first = first[np.isfinite(first)]
    began = float(np.median(first)) if len(first) else 0.0
    with np.errstate(invalid="ignore"):
        return np.asarray((table.loss >= 0) & (table.loss < NOTHING_LEFT * began))
