"""How far clients moved for the gradient that they saw: their learning rates, read off their updates.

Plain SGD of K steps moves a client by at most lr * K * |g| while its gradients stay as large as the first one, so
|update| / (K * |first gradient|) estimates its rate: a little below lr at first, less as gradients shrink on the way.
Whatever data a client has, that number hardly differs from its cohort's; a wrong rate shows as the factor it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.cohorts import (
    against_cohort,
    finite_update,
    first_gradients,
    in_order,
    received_losses,
    round_medians,
    row_medians,
    spread_of,
)
from fedvitals.diagnose.robust import median
from fedvitals.store.table import Bools, Floats

NEARLY_NONE = 0.2  # of the loss that the run began with: below it, how a loss moves is the luck of the batch


@dataclass(frozen=True, slots=True, eq=False)
class Rates:
    """Of each participation, as logarithms. Without sampled gradients, of the update's length a step.

    One first gradient may be small or large by the luck of its batch. So there is also a low estimate, by the
    largest of the gradient, the cohort's median and the client's own one, and a high estimate by the least of its
    own.
    """

    log: Floats
    away: Floats  # from the cohort's median
    top: Floats  # the highest median of a round so far: about the true rate, which shrinking gradients hide later
    low: Floats
    low_away: Floats
    high_away: Floats
    longer: Floats  # the update alone, whatever its gradient and steps, against the cohort's median
    spread: float  # robust deviation of `away`
    by_gradient: bool


def rates(chart: Chart) -> Rates:
    """Every participation's rate, and its distance from the cohort's."""
    table, first = chart.participations, chart.shared(first_gradients)
    by_gradient = bool(np.isfinite(first).any())
    gradient = first if by_gradient else np.ones(len(first))
    own = _own_medians(chart, gradient)
    largest = np.fmax(np.fmax(gradient, round_medians(chart, gradient)), own)
    with np.errstate(divide="ignore", invalid="ignore"):
        length = _trained_length(chart)
        norm = np.log(np.where(finite_update(chart) & (length > 0), length, np.nan))
        a_step = norm - np.log(np.where(table.steps > 0, table.steps, 1.0))
        estimates = [a_step - np.log(by) for by in (gradient, largest, np.fmin(gradient, own))]
    away, low_away, high_away = (against_cohort(chart, one) for one in estimates)
    medians = round_medians(chart, estimates[0])
    return Rates(
        log=estimates[0],
        away=away,
        top=np.fmax.accumulate(medians) if len(medians) else medians,  # rows come in the order of the rounds
        low=estimates[1],
        low_away=low_away,
        high_away=high_away,
        longer=against_cohort(chart, norm),
        spread=spread_of(away),
        by_gradient=by_gradient,
    )


def _trained_length(chart: Chart) -> Floats:
    """Of each update without what no gradient moves: a normalisation's running means may be most of its length."""
    updates, whole = chart.updates, chart.participations.update_norm
    if updates is None or all(layer.trainable is not False for layer in updates.layout.layers):
        return whole
    trained = np.array([layer.trainable is not False for layer in updates.layout.layers])
    length = np.sqrt((updates.norms[:, trained].astype(np.float64) ** 2).sum(axis=1))
    return np.where(updates.present, length, whole)


def _own_medians(chart: Chart, values: Floats) -> Floats:
    """Of each client, over all its participations."""
    return row_medians(in_order(chart, values))[chart.participations.client]


def step_losses(chart: Chart) -> Floats:
    """[rows, kept steps]: the losses of single steps, NaN where there is none. Infinite ones stay."""
    updates, table = chart.updates, chart.participations
    if updates is None:
        return np.full((len(table), 0), np.nan)
    known = np.where(np.isnan(table.steps), np.inf, table.steps)[:, None]
    taken = (updates.loss_steps >= 0) & (updates.loss_steps < known)
    return np.where(taken, updates.losses.astype(np.float64), np.nan)


def late_losses(chart: Chart) -> Floats:
    """The mean loss of the second half of each participation's kept steps; NaN where fewer than two are known."""
    losses = chart.shared(step_losses)
    count = (~np.isnan(losses)).sum(axis=1)
    late = (np.cumsum(~np.isnan(losses), axis=1) > np.maximum(count // 2, 1)[:, None]) & ~np.isnan(losses)
    with np.errstate(divide="ignore", invalid="ignore"):
        means: Floats = np.where(late, losses, 0.0).sum(axis=1) / np.where(late.any(axis=1), late.sum(axis=1), np.nan)
    return means


EARLY = 3  # losses: of the received model, and after one and two steps


def loss_jumps(chart: Chart) -> Floats:
    """The largest finite loss inside each participation over its loss on receipt, as a logarithm; NaN: not known."""
    return _jumps(chart, chart.shared(step_losses))


def early_jumps(chart: Chart) -> Floats:
    """The same of the first two steps alone, which gradients that pile up leave nearly as they were."""
    return _jumps(chart, chart.shared(step_losses)[:, :EARLY])


def _jumps(chart: Chart, losses: Floats) -> Floats:
    if not losses.shape[1]:
        return np.full(len(chart.participations), np.nan)
    finite = np.where(np.isfinite(losses), losses, -np.inf)
    first = np.where(np.isfinite(losses[:, 0]), losses[:, 0], received_losses(chart))
    with np.errstate(divide="ignore", invalid="ignore"):
        jump = np.log(finite.max(axis=1) / np.fmax(first, chart.shared(small_loss)))
    return np.where(np.isfinite(jump), jump, np.nan)


def small_loss(chart: Chart) -> float:
    """What counts as next to no loss in this run; 0 where nothing is known of its beginning."""
    losses = received_losses(chart)
    began = median(losses[chart.cohorts[0][1]]) if chart.cohorts else 0.0
    return NEARLY_NONE * began if began > 0 else 0.0


def blamed(chart: Chart, rows: Bools) -> Bools:
    """The same, without rounds in which it holds for half of the cohort or more: then it is nobody's own fault."""
    kept = rows.copy()
    for _, some in chart.cohorts:
        if rows[some].sum() * 2 >= len(some):
            kept[some] = False
    return kept
