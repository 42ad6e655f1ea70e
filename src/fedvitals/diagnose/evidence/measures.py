"""What is measured of each update in its cohort: scale-free numbers that bad clients move and unusual ones do not.

All are functions of statistics, sketches and losses; none needs data or the update itself. Angles are between unit
sketches, so they are cosines with an error of about 1/16.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedvitals.diagnose.chart import MAX, MEAN, MIN, NORM, STD, ZEROS, Chart, Updates
from fedvitals.diagnose.evidence.loss_scale import loss_logs
from fedvitals.diagnose.evidence.units import TINY, Numbers, correlation, pushed_units, pushes
from fedvitals.diagnose.guessing import goes_on
from fedvitals.store.table import Floats, Ints

SINGLE = (
    "norm",  # log of the update's norm, less what its number of steps explains
    "first_loss",  # log: nearly the received model's loss on its rows
    "loss",
    "last_loss",
    "loss_drop",
    "loss_jump",  # log of the largest loss over the first
    "loss_rough",  # how unsteady the losses of its steps are
    "norm_for_loss",  # log norm less log first loss
    "last_share",  # log share of the last matrix in the norm
    "first_share",
    "bias_share",
    "range_first",  # log of (max - min) / std of the first matrix
    "range_last",
    "zeros_first",  # share of values that did not move
    "mean_last",  # mean over std of the last bias
    "bias_rows",  # correlation of the last bias with the sums of the last matrix's rows
    "bias_skew",  # a few classes pushed up, or a few pushed down
    "units_focus",  # how few output units carry the update
    "samples",
    "gradient",  # log norm of its first gradient, of the very model that the others received
    "gradient_first",  # log share of the first matrix in it
    "rate",  # log norm less log steps and log first gradient: about its learning rate
    "late_loss",  # log of the mean over the second half of its steps
    "push",  # log of how far it pushed the output units, the sums of the last matrix's rows
    "push_up",  # the unit that it pushed up most
    "push_down",
    "bias_push",  # log of how far it moved the last bias
)
COHORT = (
    "cosine",  # to the mean direction of the others
    "cosine_first",
    "cosine_last",
    "cosine_bias",
    "cosine_units",
    "nearest",  # cosine to the nearest other
    "profile",  # distance of its layer shares from the cohort's
    "cosine_rows",  # to the others, each output unit's row for itself
)
OWN = (
    "own_previous",  # cosine to its own last update
    "own_mean",  # to the mean direction of its own past
    "own_first",  # to the mean direction of its first participations
    "own_signature",  # to its own past, both less what the cohort did
    "own_units",  # of how it pushed the output units, to its own past
    "own_last",  # of the last matrix
    "own_rows",  # each output unit's row for itself
    "late_signature",  # of its last five together to all before them, both less what the cohort did
    "late_steady",  # how much its last five are unlike the cohort in the same way
    "late_news",  # the same in ways in which it was not before
    "long_signature",  # the same two of its last eight
    "long_news",
    "late_last",  # the signature in the last matrix
    "late_first",
    "late_pushed",  # by how much it pushes one of the units more than it used to
    "late_pulled",
    "late_rows",  # of the rows of the last matrix in its last five, to all before them
    "late_rows_news",
    "steady_push",  # log of how far its last five together push the output units unlike the cohort
    "push_shift",  # of how far that is from what it did before
    "push_shift_soon",  # the same of its last three
)
NAMES = (*SINGLE, *COHORT, *OWN)
LEAST_LOSS = 0.03  # of what the first cohort began with
Put = Callable[[str, Numbers], None]


class Directions(NamedTuple):
    """Where the updates of one round point, unit rows: as a whole, and in the last matrix."""

    sketches: Numbers
    units: Numbers | None  # the signed sums of its rows
    rows: Numbers | None  # sketches of its rows, one after the other
    pushes: Numbers | None  # the sums of its rows as they are, not as a direction


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """Where in a layout the telling layers are; None where there is none."""

    first: int | None
    last: int | None
    bias: int | None  # the vector behind the last matrix, kept whole in the sketch
    vectors: tuple[int, ...]
    places: tuple[slice, ...]  # of each layer in the sketch


def parts(updates: Updates) -> Parts:
    layout = updates.layout
    ends = np.cumsum((0, *layout.sketch_buckets)).tolist()
    places = tuple(slice(start, end) for start, end in pairwise(ends))
    moving = [index for index, layer in enumerate(layout.layers) if layer.size and layer.dtype.startswith(("f", "b"))]
    matrices = [index for index in moving if len(layout.layers[index].shape) >= 2]
    vectors = tuple(index for index in moving if len(layout.layers[index].shape) == 1)
    last = layout.unit_layer if layout.unit_layer is not None else (matrices[-1] if matrices else None)
    return Parts(matrices[0] if matrices else None, last, _bias_of(updates, last), vectors, places)


def trained(updates: Updates) -> NDArray[np.bool_]:
    """[layers]: those that a gradient moves; a normalisation's running means follow the rows, and may be most of it."""
    return np.array([layer.trainable is not False for layer in updates.layout.layers], bool)


def trained_sketches(updates: Updates, sketches: Numbers) -> Numbers:
    """The same without the buckets of what is not trained."""
    learns, where = trained(updates), parts(updates).places
    if learns.all():
        return sketches
    found = sketches.copy()
    for place, learnt in zip(where, learns, strict=True):
        if not learnt:
            found[:, place] = 0.0
    return found


def _bias_of(updates: Updates, last: int | None) -> int | None:
    """The layer behind the last matrix, if it has a value a unit and the sketch holds it whole."""
    layers, buckets = updates.layout.layers, updates.layout.sketch_buckets
    if last is None or last + 1 >= len(layers) or last + 1 >= len(buckets):
        return None
    behind = layers[last + 1]
    fits = behind.shape == layers[last].shape[:1] and buckets[last + 1] == behind.size
    return last + 1 if fits else None


def singles(chart: Chart, updates: Updates) -> Floats:
    """[participations, SINGLE]: what each update and its losses say by themselves."""
    table, where = chart.participations, parts(updates)
    stats = updates.stats.astype(np.float64)
    stats[:, ~trained(updates), NORM] = 0.0
    out = np.full((len(table), len(SINGLE)), np.nan)

    def put(name: str, values: NDArray[np.floating]) -> None:
        out[:, SINGLE.index(name)] = values

    with np.errstate(all="ignore"):
        total = np.sqrt((stats[:, :, NORM] ** 2).sum(axis=1))
        norm = np.log(np.maximum(total, TINY))
        scale, least = np.exp(chart.shared(loss_logs)), _least_loss(chart)
        first_loss = np.log(np.maximum(table.first_loss / scale, least))
        last_loss = np.log(np.maximum(table.last_loss / scale, least))
        put("norm", norm - _explained_by_steps(norm, table.steps))
        put("first_loss", first_loss)
        put("loss", np.log(np.maximum(table.loss / scale, least)))
        put("last_loss", last_loss)
        put("loss_drop", last_loss - first_loss)
        put("norm_for_loss", norm - first_loss)
        put("samples", np.log(np.maximum(table.samples, 1.0)))
        _put_curves(put, updates.losses.astype(np.float64) / scale[:, None], least)
        _put_gradients(put, chart, norm)
        _put_shapes(put, stats, where, total)
        _put_units(put, updates, where)
    out[~updates.present] = np.nan
    return out


def _least_loss(chart: Chart) -> float:
    """What a loss is taken for that is less: once most of it is gone, what is left is chance, and the logarithm of a
    loss on ten rows, all learnt, would run away from the others for ever."""
    first = chart.participations.first_loss[chart.cohorts[0][1]] if chart.cohorts else np.empty(0)
    first = first[np.isfinite(first)]
    began = np.fmax(np.median(first), chart.shared(goes_on)) if len(first) else 0.0
    return max(LEAST_LOSS * float(began), 1e-6)


def _explained_by_steps(norm: Floats, steps: Floats) -> Floats:
    """Longer trainings move further: the robust line through all participations of the run."""
    from fedvitals.diagnose.robust import median, slope

    longer = np.log(np.maximum(steps, 1.0))
    seen = np.isfinite(norm) & np.isfinite(longer)
    if not seen.any() or np.ptp(longer[seen]) < 1e-9:
        return np.zeros_like(norm)
    rise = slope(longer, norm)
    rise = min(max(rise, 0.0), 1.0) if np.isfinite(rise) else 0.0
    return np.where(np.isfinite(longer), rise * (longer - median(longer)), 0.0)


def _put_curves(put: Put, plain: Floats, least: float) -> None:
    losses = np.log(np.maximum(plain, least))
    if losses.shape[1] < 2:
        return
    put("loss_jump", np.nanmax(np.where(np.isnan(losses), -np.inf, losses), axis=1) - losses[:, 0])
    moves = np.abs(np.diff(losses, axis=1))
    count = np.maximum((~np.isnan(moves)).sum(axis=1), 1)
    put("loss_rough", np.nansum(moves, axis=1) / count)
    steps = np.cumsum(~np.isnan(losses), axis=1)
    late = ~np.isnan(losses) & (2 * steps > steps[:, -1:])
    mean = np.where(late, plain, 0.0).sum(axis=1) / late.sum(axis=1)
    put("late_loss", np.log(np.maximum(mean, least)))


def _put_gradients(put: Put, chart: Chart, norm: Floats) -> None:
    gradients = chart.gradients
    if gradients is None or not len(gradients.step):
        return
    first = (gradients.row >= 0) & (gradients.step == 0)
    squares = np.full((len(norm), gradients.norms.shape[1]), np.nan)
    squares[gradients.row[first]] = gradients.norms[first].astype(np.float64) ** 2
    total = squares.sum(axis=1)
    length = 0.5 * np.log(np.where(total > TINY**2, total, np.nan))
    put("gradient", length)
    put("rate", norm - np.log(np.maximum(chart.participations.steps, 1.0)) - length)
    matrices = [index for index, layer in enumerate(gradients.layout.layers) if len(layer.shape) >= 2]
    if matrices and matrices[0] < squares.shape[1]:
        put("gradient_first", 0.5 * np.log(np.maximum(squares[:, matrices[0]] / total, TINY**2)))


def _put_shapes(put: Put, stats: Floats, where: Parts, total: Floats) -> None:
    shares = np.log(np.maximum(stats[:, :, NORM], TINY) / np.maximum(total, TINY)[:, None])
    if where.last is not None:
        put("last_share", shares[:, where.last])
        put("range_last", _range(stats, where.last))
    if where.first is not None:
        put("first_share", shares[:, where.first])
        put("range_first", _range(stats, where.first))
        put("zeros_first", stats[:, where.first, ZEROS])
    if where.bias is not None:
        put("mean_last", stats[:, where.bias, MEAN] / np.maximum(stats[:, where.bias, STD], TINY))
    if where.vectors:
        squares = (stats[:, where.vectors, NORM] ** 2).sum(axis=1)
        put("bias_share", 0.5 * np.log(np.maximum(squares, TINY**2)) - np.log(np.maximum(total, TINY)))


def _range(stats: Floats, layer: int) -> Floats:
    width = stats[:, layer, MAX] - stats[:, layer, MIN]
    found: Floats = np.log(np.maximum(width, TINY) / np.maximum(stats[:, layer, STD], TINY))
    return found


def _put_units(put: Put, updates: Updates, where: Parts) -> None:
    pushed = pushed_units(updates)
    if pushed is None or updates.unit_norms is None:
        return
    _put_pushes(put, updates)
    squares = updates.unit_norms.astype(np.float64) ** 2
    put("units_focus", (squares**2).sum(axis=1) / np.maximum(squares.sum(axis=1), TINY) ** 2)
    if where.bias is None or updates.sketches is None:
        return
    bias = updates.sketches[:, where.places[where.bias]].astype(np.float64)
    if bias.shape[1] == pushed.shape[1]:
        put("bias_rows", correlation(bias, pushed))
    put("bias_push", np.log(np.maximum(updates.stats[:, where.bias, NORM].astype(np.float64), TINY)))
    centred = bias - bias.mean(axis=1, keepdims=True)
    width = np.maximum(np.sqrt((centred**2).mean(axis=1)), TINY)
    put("bias_skew", (centred**3).mean(axis=1) / width**3)


def _put_pushes(put: Put, updates: Updates) -> None:
    pushed = pushes(updates)
    if pushed is not None:
        far = pushed.astype(np.float64)
        put("push", np.log(np.maximum(np.sqrt((far**2).sum(axis=1)), TINY)))
        put("push_up", np.log(np.maximum(far.max(axis=1), TINY)))
        put("push_down", np.log(np.maximum(-far.min(axis=1), TINY)))


def unit(vectors: Numbers) -> Numbers:
    """Each row divided by its length; what has none stays 0."""
    lengths = np.sqrt(np.einsum("...i,...i->...", vectors, vectors))[..., None]
    return np.divide(vectors, np.where(lengths > TINY, lengths, np.inf))


def cohort_measures(now: Directions, log_shares: Floats, where: Parts) -> Floats:
    """[cohort, COHORT] of the updates of one round."""
    sketches, pushed = now.sketches, now.units
    out = np.full((len(sketches), len(COHORT)), np.nan)
    if len(sketches) < 3:
        return out
    out[:, 0] = _to_others(sketches)
    for place, layer in ((1, where.first), (2, where.last), (3, where.bias)):
        if layer is not None and where.places:
            out[:, place] = _to_others(unit(sketches[:, where.places[layer]]))
    if pushed is not None:
        out[:, 4] = _to_others(pushed)
    singles = sketches.astype(np.float32)  # a product of cohort times cohort: the dearest line of all
    angles = singles @ singles.T
    np.fill_diagonal(angles, -np.inf)
    out[:, 5] = angles.max(axis=1)
    away = log_shares - np.median(log_shares, axis=0)
    out[:, 6] = np.log(np.sqrt((np.minimum(np.abs(away), 10.0) ** 2).mean(axis=1)) + 1e-3)
    if now.rows is not None and pushed is not None:
        out[:, 7] = each_unit(now.rows, now.rows.sum(axis=0) - now.rows, pushed.shape[1])
    return out


def each_unit(rows: Numbers, others: Numbers, units: int) -> Numbers:
    """How like each output unit's row is to another of the same unit, weighted by its share of the update."""
    mine, theirs = rows.reshape(len(rows), units, -1), others.reshape(len(others), units, -1)
    lengths = np.sqrt(np.einsum("cub,cub->cu", mine, mine))
    found: Numbers = np.einsum("cub,cub,cu->c", mine, unit(theirs), lengths)
    return found


def _to_others(rows: Numbers) -> Numbers:
    """The cosine of each unit row to the mean of the others."""
    others = unit(rows.sum(axis=0) - rows)
    found: Numbers = np.einsum("ij,ij->i", rows, others)
    return found


def rows_of(chart: Chart, rows: Ints) -> Ints:
    """Those of these participations that can be measured: an update is there and finite, and not nothing."""
    updates = chart.updates
    if updates is None:
        return rows[:0]
    fit = updates.present[rows] & (updates.nonfinite[rows].sum(axis=1) == 0)
    norms = updates.norms[rows].astype(np.float64)
    fit &= np.isfinite(norms).all(axis=1) & (norms.sum(axis=1) > 0)
    kept: Ints = rows[fit]
    return kept
