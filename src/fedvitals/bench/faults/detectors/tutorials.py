"""Thresholds by hand, as tutorials on federated debugging write them: no cohort, no history beyond the last value.

A client is named once any of these has been true of it: its gradients or its update are not finite; the gradient of a
layer has a norm above 100 or below 1e-7; a layer's gradient norm changed by more than three times its last value; a
weight of its update is beyond 1000; its loss has more than doubled over five of its participations. Nothing is given to
it, and once named is named for good.
"""

from __future__ import annotations

import numpy as np

from fedvitals.diagnose.chart import MAX, MIN, Chart
from fedvitals.store.table import Bools

EXPLODING = 100.0
VANISHING = 1e-7
CHANGE = 3.0
LARGE = 1000.0
DOUBLED = 2.0
OVER = 5  # participations
NAME = "tutorials"


def named_by_round(chart: Chart) -> dict[int, frozenset[str]]:
    """Round -> whom the thresholds have named until then."""
    wrong = _values(chart) | _gradients(chart) | _losses(chart)
    found: dict[int, frozenset[str]] = {}
    so_far: set[str] = set()
    for number, rows in chart.cohorts:
        so_far |= set(chart.names(chart.participations.client[rows[wrong[rows]]]))
        found[number] = frozenset(so_far)
    return found


def _values(chart: Chart) -> Bools:
    table, updates = chart.participations, chart.updates
    wrong: Bools = (np.nan_to_num(table.nonfinite) > 0) | ~np.isnan(table.bad_step)
    if updates is not None:
        with np.errstate(invalid="ignore"):
            wrong |= (updates.stats[:, :, MAX] > LARGE).any(axis=1) | (updates.stats[:, :, MIN] < -LARGE).any(axis=1)
    return wrong


def _gradients(chart: Chart) -> Bools:
    wrong = np.zeros(len(chart.participations), dtype=np.bool_)
    gradients = chart.gradients
    if gradients is None:
        return wrong
    known = gradients.row >= 0
    row, norms = gradients.row[known], gradients.norms[known].astype(np.float64)
    client = chart.participations.client[row]
    order = np.lexsort((gradients.step[known], chart.participations.attempt[row], client))
    row, norms, client = row[order], norms[order], client[order]
    with np.errstate(invalid="ignore", divide="ignore"):
        bad: Bools = np.asarray((~np.isfinite(norms) | (norms > EXPLODING) | (norms < VANISHING)).any(axis=1))
        changed = (np.abs(np.diff(norms, axis=0)) / norms[:-1] > CHANGE).any(axis=1)
    bad[1:] |= changed & (client[1:] == client[:-1])
    wrong[row[bad]] = True
    return wrong


def _losses(chart: Chart) -> Bools:
    wrong = np.zeros(len(chart.participations), dtype=np.bool_)
    loss = chart.participations.loss
    for rows in chart.histories:
        own = loss[rows]
        with np.errstate(invalid="ignore"):
            wrong[rows[OVER - 1 :]] = own[OVER - 1 :] > DOUBLED * own[: len(own) - OVER + 1]
    return wrong
