"""Losses -> clients that report theirs times a constant: a sum where the others have a mean.

Such a client's loss is that of the others times one number, from its first participation on, and that number is what it
summed over: its batch, its steps or its rows. No data do that. A model that is new to all is as bad for one client's
rows as for another's, within a few percent; inputs of another scale make it worse for one, and lengthen the gradients
of some layers and not of others. Evidence about losses takes the number off, so that the client is judged by the rest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.cohorts import against_cohort, received_losses
from fedvitals.diagnose.robust import median
from fedvitals.store.table import Bools, Floats, Ints

EARLY = 3  # participations that are asked: later on, models are better for one than for another
LEAST_FACTOR = 4.0
AS_MUCH = math.log(1.3)  # how near each of these losses must be to the number, and that to what was summed over
UNLIKE = math.log(1.35)  # how far nearly all losses of the others may be from the usual in those rounds
NEARLY_ALL = 0.95  # of them
LASTS = 0.9  # of all its participations, whose losses are above half of the number, on a logarithmic scale
ALIKE = math.log(2.0)  # how far lengths of updates and gradients may typically be from what they should be
LESS_ALIKE = 0.2  # than the cosines of most others: who goes elsewhere has other rows
MOST = 0.25  # of the clients: what is so of many is no slip of one


@dataclass(frozen=True, slots=True)
class Scale:
    """One client, and what it multiplies its losses by."""

    client: int
    factor: float
    by: str  # what it sums over
    count: float  # of these
    trains: bool  # its gradients are as much longer: it is this loss that it trains by


def loss_scales(chart: Chart) -> tuple[Scale, ...]:
    """Clients whose losses are on another scale. Ask through `chart.shared(loss_scales)`."""
    away = _away(chart, chart.shared(received_losses))
    likely = [
        client
        for client, rows in enumerate(chart.histories)
        if len(rows) >= EARLY and (away[rows[:EARLY]] > math.log(LEAST_FACTOR)).all()
    ]
    scales = [one for client in likely if (one := _scale(chart, client, away)) is not None]
    return tuple(scales) if len(scales) <= MOST * len(chart.clients) else ()


def loss_logs(chart: Chart) -> Floats:
    """[participations]: what to take off the logarithm of each loss."""
    found = np.zeros(len(chart.participations))
    for one in chart.shared(loss_scales):
        found[chart.histories[one.client]] = math.log(one.factor)
    return found


def _away(chart: Chart, values: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return against_cohort(chart, np.log(np.where(values > 0, values, np.nan)))


def _scale(chart: Chart, client: int, away: Floats) -> Scale | None:
    rows, rounds = chart.histories[client], chart.participations.round
    early, log = rows[:EARLY], median(away[rows[:EARLY]])
    beside = np.isin(rounds, rounds[early]) & (chart.participations.client != client) & np.isfinite(away)
    if not beside.any():
        return None
    one_number = (np.abs(away[early] - log) < AS_MUCH).all() and np.quantile(np.abs(away[beside]), NEARLY_ALL) < UNLIKE
    with np.errstate(invalid="ignore"):
        lasts = (away[rows] > log / 2).sum() >= LASTS * np.isfinite(away[rows]).sum()
    over = {what: count for what, count in _summed_over(chart, rows).items() if abs(math.log(count) - log) < AS_MUCH}
    if not (one_number and lasts and over):
        return None
    by = min(over, key=lambda what: abs(math.log(over[what]) - log))
    lengths = np.append(_gradients(chart, early), median(_away(chart, chart.participations.update_norm)[early]))
    if abs(median(lengths)) < ALIKE and (lengths < log / 2).all() and _goes_with_others(chart, rows, beside):
        return Scale(client, math.exp(log), by, over[by], trains=False)
    gradients = lengths[:-1]
    trains = abs(median(gradients) - log) < ALIKE and bool((gradients > log / 2).all())
    return Scale(client, math.exp(log), by, over[by], trains=True) if trains else None


def _gradients(chart: Chart, rows: Ints) -> Floats:
    """[layers]: how much longer these first gradients are than the others', as a logarithm; empty where unknown."""
    longer: Floats = np.array([median(layer[rows]) for layer in chart.shared(_longer)])
    return longer[np.isfinite(longer)]


def _longer(chart: Chart) -> list[Floats]:
    """Of each layer: by how much each first gradient is longer than the others', as a logarithm."""
    gradients = chart.gradients
    if gradients is None:
        return []
    norms = np.full((len(chart.participations), gradients.norms.shape[1]), np.nan)
    first = (gradients.row >= 0) & (gradients.step == 0)
    norms[gradients.row[first]] = gradients.norms[first]
    return [_away(chart, layer) for layer in norms.T]


def _goes_with_others(chart: Chart, rows: Ints, beside: Bools) -> bool:
    """Its updates point where the others' do, as nearly as these do."""
    cosines = chart.participations.cosine
    others = cosines[beside & np.isfinite(cosines)]
    least = float(np.quantile(others, 1 - NEARLY_ALL)) - LESS_ALIKE if len(others) else math.inf
    return median(cosines[rows[:EARLY]]) > least


def _summed_over(chart: Chart, rows: Ints) -> dict[str, float]:
    """What a client may have summed its losses over, and how many of these there typically are."""
    table = chart.participations
    samples, steps, epochs = (median(column[rows]) for column in (table.samples, table.steps, table.epochs))
    whole = samples * epochs if epochs >= 1 else samples
    counts = {"batch": min(whole / steps, samples) if steps > 0 else math.nan, "rows": samples, "steps": steps}
    return {what: count for what, count in counts.items() if count > 1}
