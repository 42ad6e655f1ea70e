"""Participations against their cohort and their own past, all at once: what rules and evidence about clients share."""

from __future__ import annotations

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.robust import TO_SIGMA
from fedvitals.store.table import Bools, Floats, Ints

SICK = 1.5  # the cohort's median loss, as a multiple of its least so far, from which on nobody is accused
UNWELL = 1.15  # and the same after an update that outweighed all others was averaged in
WILD = 5.0  # such an update: as a multiple of the cohort's median norm
LEAPT = 1.5  # times the first step's loss: then the second says more of the step than of the model
SPOILT = 10.0  # times the loss that the run began with: on such a model trainings overflow
BETTER = 0.97  # times the cohort's median loss: a model that is no better than that has learnt nothing since
SMALLEST = 4  # clients in a cohort, below which its median says little about the others


def round_medians(chart: Chart, values: Floats) -> Floats:
    """For each participation the median of what is finite among its round's values; NaN where nothing is."""
    found = np.full(len(values), np.nan)
    for _, rows in chart.cohorts:
        some = values[rows]
        finite = some[np.isfinite(some)]
        if finite.size:
            found[rows] = np.median(finite)
    return found


def against_cohort(chart: Chart, logs: Floats) -> Floats:
    """Logarithms minus their round's median; NaN where too few of the round are known to compare with."""
    known = np.isfinite(logs)
    sizes = np.zeros(len(logs))
    for _, rows in chart.cohorts:
        sizes[rows] = known[rows].sum()
    away = np.where(known, logs, np.nan) - round_medians(chart, logs)
    return np.where(sizes >= SMALLEST, away, np.nan)


def spread_of(away: Floats) -> float:
    """The robust standard deviation of all distances from the cohort; by the largest seventh where tails are heavy."""
    finite = np.abs(away[np.isfinite(away)])
    return max(TO_SIGMA * float(np.median(finite)), float(np.quantile(finite, 0.85)) / 1.44) if finite.size else 0.0


def received_losses(chart: Chart) -> Floats:
    """Of each participation, the loss of the model it received on its own rows, as nearly as it is known: the mean
    of its first two steps, or the very first where the second leapt already."""
    return chart.shared(_received_losses)


def _received_losses(chart: Chart) -> Floats:
    table, updates = chart.participations, chart.updates
    found = np.where(np.isnan(table.first_loss), table.loss, table.first_loss)
    if updates is None or updates.losses.shape[1] < 2:
        return found
    first, second = updates.losses[:, 0].astype(np.float64), updates.losses[:, 1]
    like = (second <= LEAPT * first) & (second >= first / LEAPT)
    leapt = (updates.loss_steps[:, 0] == 0) & np.isfinite(first) & ~like & (table.steps > 1)
    return np.where(leapt, first, found)


def first_gradients(chart: Chart) -> Floats:
    """The norm of each participation's gradient at its first step; NaN where it was not sampled."""
    found = np.full(len(chart.participations), np.nan)
    gradients = chart.gradients
    if gradients is None:
        return found
    chosen = (gradients.row >= 0) & (gradients.step == 0)
    squares = np.nansum(gradients.norms[chosen].astype(np.float64) ** 2, axis=1)
    found[gradients.row[chosen]] = np.where(squares > 0, np.sqrt(squares), np.nan)
    return found


def finite_update(chart: Chart) -> Bools:
    """Participations whose update is known and holds finite values only."""
    table = chart.participations
    return np.isfinite(table.update_norm) & ~(table.nonfinite > 0)


def well(chart: Chart) -> Bools:
    """Participations in rounds whose model is not sick already: whoever trains a sick model is not to blame for it.

    A round is sick when the median loss on receipt lies well above its least so far, or is not finite for half of the
    cohort; less is enough after a wild update was used.
    """
    losses, norms = received_losses(chart), chart.participations.update_norm
    good = np.ones(len(losses), dtype=bool)
    least, wild_before = np.inf, False
    for _, rows in chart.cohorts:
        known = losses[rows][~np.isnan(losses[rows])]
        middle = float(np.median(known)) if known.size else np.nan
        reported = chart.participations.steps[rows] > 0
        lost = bool(np.mean(~np.isfinite(losses[rows][reported])) > 0.5) if reported.any() and least < np.inf else False
        above = UNWELL if wild_before else SICK
        if lost or (np.isfinite(least) and middle > above * least):
            good[rows] = False
        elif np.isfinite(middle):
            least = min(least, middle)
        wild_before = wild_before or _has_wild(norms[rows])
    return good


def spoilt(chart: Chart) -> Bools:
    """Participations in rounds whose model is thrown far behind its beginning, until it is as good again as it had been
    before: what breaks there, or stands still, had no chance."""
    losses, found = round_medians(chart, received_losses(chart)), np.zeros(len(chart.participations), dtype=bool)
    first, least, bad = np.nan, np.inf, False
    for _, rows in chart.cohorts:
        middle = float(losses[rows[0]]) if len(rows) else np.nan
        first = middle if np.isnan(first) else first
        bad = bool(middle > SPOILT * first) or (bad and not middle <= least)
        found[rows] = bad
        least = least if bad else float(np.fmin(least, middle))
    return found


def _has_wild(norms: Floats) -> bool:
    known = norms[~np.isnan(norms)]
    if known.size < SMALLEST:
        return False
    finite = known[np.isfinite(known)]
    middle = float(np.median(finite)) if finite.size else 0.0
    return bool(finite.size < known.size or (middle > 0 and finite.max() > WILD * middle))


def histories(chart: Chart) -> Ints:
    """[clients, most participations]: the rows of each client's participations in order, then -1."""
    width = max((len(rows) for rows in chart.histories), default=0)
    table = np.full((len(chart.clients), width), -1, dtype=np.int64)
    for client, rows in enumerate(chart.histories):
        table[client, : len(rows)] = rows
    return table


def row_medians(table: Floats) -> Floats:
    """Of what is finite in each row; NaN where nothing is."""
    ordered = np.sort(np.where(np.isfinite(table), table, np.inf), axis=1)
    count = np.isfinite(table).sum(axis=1)
    if not table.shape[1]:
        return np.full(len(table), np.nan)
    every = np.arange(len(table))
    low, high = (
        ordered[every, np.maximum(count - 1, 0) // 2],
        ordered[every, np.minimum(count // 2, table.shape[1] - 1)],
    )
    with np.errstate(invalid="ignore"):
        return np.where(count > 0, (low + high) / 2, np.nan)


def in_order(chart: Chart, values: Floats) -> Floats:
    """[clients, most participations]: values in the order of each client's participations, NaN after the last."""
    table = chart.shared(histories)
    if not table.size:
        return np.empty(table.shape)
    return np.where(table >= 0, values[np.maximum(table, 0)], np.nan)


def lasting(chart: Chart, marked: Bools, known: Bools) -> Bools:
    """Without clients that are marked in less than half of what is known of them since they first were: a learning rate
    stays what it is, and luck does not. A model that has learnt nothing since says nothing of them: they may be who
    spoilt it, and everybody's gradients of a spoilt model are alike."""
    kept, losses = marked.copy(), round_medians(chart, received_losses(chart))
    for client in np.unique(chart.participations.client[marked]):
        rows = chart.histories[client]
        since = rows[int(np.argmax(marked[rows])) :]
        stuck = losses[since] > BETTER * losses[since[0]]
        if 2 * marked[since].sum() < ((known[since] & ~stuck) | marked[since]).sum():
            kept[rows] = False
    return kept
