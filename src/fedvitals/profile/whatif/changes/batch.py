"""What if clients trained with larger batches: fewer steps over as many rows.

A participation takes `c`, a step `a`, and a row `b`. On the virtual clock they are known from the client's device;
elsewhere they are fitted to the run's participations, which differ in rows a step: their last batches are smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from fedvitals.profile.whatif.fitting import Fit, fitted
from fedvitals.profile.whatif.model import Model
from fedvitals.profile.whatif.prediction import Declined, Prediction
from fedvitals.profile.whatif.simulate import Change
from fedvitals.profile.whatif.telling import less_by, told_of
from fedvitals.store.table import Floats
from fedvitals.vocabulary import CLIENT_PHASES

KIND = "batch"
TIMES = (2, 4)
COMPUTING = [CLIENT_PHASES.index("load"), CLIENT_PHASES.index("train")]
FLOP = 6  # a parameter a row, as the engine's devices count
VALUE_BYTES = 4
MOST_UNSURE = 0.05  # of the wall time

Rates = Callable[[str], Floats | None]  # a client's seconds a participation, a step and a row


class Amounts(NamedTuple):
    """Of each participation; NaN where it is not known."""

    rows: Floats  # gone through
    steps: Floats
    steps_after: Floats
    seconds: Floats  # of loading and training


def changes(model: Model) -> Iterator[Prediction | Declined]:
    """Twice and four times as large."""
    now = batch_size(model)
    for times in TIMES if now else ():
        found = with_batches_of(model, now * times)
        if found is not None:
            yield found
        if isinstance(found, Declined):
            return


def batch_size(model: Model) -> int:
    """Rows a step, as configured; 0 where nobody knows."""
    return int(model.told.number("train.batch_size", model.told.number("batch_size", 0.0))) * _accumulated(model)


def _accumulated(model: Model) -> int:
    """Batches a step."""
    return max(int(model.told.number("train.accumulate", 1.0)), 1)


def with_batches_of(model: Model, size: int) -> Prediction | Declined | None:
    """None where no steps were recorded, or a larger batch would have no fewer."""
    now = batch_size(model)
    amounts = _amounts(model, size) if now > 0 and size > 0 else None
    if amounts is None or not np.nansum(np.abs(amounts.steps_after - amounts.steps)):
        return None
    what = f"batches of {size} instead of {now}"
    if model.batched:
        return Declined(what, KIND, "clients are trained as one batch, which hides what a step of a client takes")
    rates, assumes = _of_devices(model), "a step and a row take what the client's device is known to need"
    if rates is None:
        fit = _fitted(amounts)
        if fit is None or _unsure(model, fit, amounts):
            why = "participations differ too little in rows a step to tell what a step takes from what a row takes"
            return Declined(what, KIND, why)
        rates, assumes = _same(fit.seconds), _in_words(fit)
    shares = _shares(model, amounts, rates)
    took = np.nan_to_num(model.timeline.participations.phases_s[:, COMPUTING]).sum(axis=1)
    seconds = model.seconds(more_s=(shares - 1.0) * took)
    learning = "as many passes over the rows; what fewer steps do to learning is not predicted"
    less = less_by(model, Change(seconds=seconds))
    job = {"train.batch_size": size // _accumulated(model)}
    return told_of(model, KIND, what, less, [assumes, learning, model.draw.assumes], job)


def _same(rates: Floats) -> Rates:
    return lambda client: rates


def _in_words(fit: Fit) -> str:
    c, a, b = (f"{1e3 * one:.3g} ms" for one in fit.seconds.tolist())
    return f"a step takes {a} and {b} a row, and a participation {c} more, fitted to this run"


def _amounts(model: Model, size: int) -> Amounts:
    """A client that did not finish has what it usually has."""
    table = model.timeline.participations
    epochs = np.where(np.isnan(table.epochs), 1.0, table.epochs)
    after = epochs * np.ceil(table.samples / size)
    seconds = table.phases_s[:, COMPUTING]
    timed = np.where(np.isnan(seconds[:, 1]), np.nan, np.nan_to_num(seconds).sum(axis=1))
    rows, steps, after = (
        _filled(column, table.client)
        for column in (table.samples * epochs, table.steps, np.minimum(after, table.steps))
    )
    return Amounts(rows, steps, after, timed)


def _filled(values: Floats, client: np.ndarray) -> Floats:
    """Where a value is missing, the client's median."""
    filled = values.copy()
    for one in np.unique(client[np.isnan(values)]).tolist():
        mine = client == one
        known = values[mine & ~np.isnan(values)]
        if len(known):
            filled[mine & np.isnan(values)] = np.median(known)
    return filled


def _of_devices(model: Model) -> Rates | None:
    """What is known on the virtual clock."""
    parameters = sum(layer.bytes for layer in model.profile.communication.layers) / VALUE_BYTES
    if not model.told.virtual or model.told.device(next(iter(model.history), "")) is None or not parameters:
        return None

    def rates(client: str) -> Floats | None:
        device = model.told.device(client)
        speed = device.get("gflop_per_s", 0.0) * 1e9 if device else 0.0
        if device is None or speed <= 0:
            return None
        return np.array([0.0, device.get("step_ms", 0.0) / 1e3, FLOP * parameters / speed])

    return rates


def _fitted(amounts: Amounts) -> Fit | None:
    return fitted(_columns(amounts.steps, amounts.rows), amounts.seconds)


def _columns(steps: Floats, rows: Floats) -> Floats:
    return np.stack([np.ones(len(steps)), steps, rows], axis=1)


def _unsure(model: Model, fit: Fit, amounts: Amounts) -> bool:
    """Whether the difference that fewer steps make is known too badly to be told."""
    fewer = float(np.nansum(amounts.steps - amounts.steps_after))
    on_path = model.profile.breakdown_s.get("train", 0.0) / max(float(np.nansum(amounts.seconds)), 1e-12)
    return fit.sure_s(np.array([0.0, fewer, 0.0])) * min(on_path, 1.0) > MOST_UNSURE * model.profile.wall_s


def _shares(model: Model, amounts: Amounts, rates: Rates) -> Floats:
    """How long each participation's computing takes with the change, to what it took."""
    found = np.ones(len(model.timeline.participations))
    for name, mine in zip(model.timeline.clients, model.rows, strict=True):
        known = rates(name)
        if known is not None:
            before = _columns(amounts.steps[mine], amounts.rows[mine]) @ known
            after = _columns(amounts.steps_after[mine], amounts.rows[mine]) @ known
            with np.errstate(divide="ignore", invalid="ignore"):
                found[mine] = np.where(before > 0, after / before, 1.0)
    return np.nan_to_num(found, nan=1.0)
