"""How far clients moved for the gradient that they saw: their learning rates, read off their updates.

Plain SGD of K steps moves a client by at most lr * K * |g| while its gradients stay as large as the first one, so
|update| / (K * |first gradient|) estimates its rate: a little below lr at first, less as gradients shrink on the way.
Whatever data a client has, that number hardly differs from its cohort's; a wrong rate shows as the factor it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedvitals.diagnose.chart import Bools, Chart, Floats
from fedvitals.diagnose.learning.cohorts import against_cohort, finite_update, received_losses, spread_of


@dataclass(frozen=True, slots=True, eq=False)
class Rates:
    """Of each participation. `log` is of the rate, or of the update's length where no gradient was sampled."""

    log: Floats
    away: Floats  # from the cohort's median
    longer: Floats  # the update alone, whatever its gradient and steps, against the cohort's median
    spread: float  # robust deviation of `away`
    by_gradient: bool


def rates(chart: Chart) -> Rates:
    """Every participation's rate, and its distance from the cohort's."""
    first = chart.shared(first_gradients)
    table = chart.participations
    by_gradient = bool(np.isfinite(first).any())
    steps = np.where(table.steps > 0, table.steps, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        log = np.log(table.update_norm / (steps * first if by_gradient else steps))
    log = np.where(finite_update(chart) & np.isfinite(log), log, np.nan)
    away = against_cohort(chart, log)
    with np.errstate(divide="ignore", invalid="ignore"):
        longer = against_cohort(chart, np.where(np.isfinite(log), np.log(table.update_norm), np.nan))
    return Rates(log, away, longer, spread_of(away), by_gradient)


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


def step_losses(chart: Chart) -> Floats:
    """[rows, kept steps]: the losses of single steps, NaN where there is none. Infinite ones stay."""
    updates, table = chart.updates, chart.participations
    if updates is None:
        return np.full((len(table), 0), np.nan)
    known = np.where(np.isnan(table.steps), np.inf, table.steps)[:, None]
    taken = (updates.loss_steps >= 0) & (updates.loss_steps < known)
    return np.where(taken, updates.losses.astype(np.float64), np.nan)


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
        jump = np.log(finite.max(axis=1) / first)
    return np.where(np.isfinite(jump), jump, np.nan)


def blamed(chart: Chart, rows: Bools) -> Bools:
    """The same, without rounds in which it holds for half of the cohort or more: then it is nobody's own fault."""
    kept = rows.copy()
    for _, some in chart.cohorts:
        if rows[some].sum() * 2 >= len(some):
            kept[some] = False
    return kept
