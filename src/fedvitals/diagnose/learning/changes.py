"""When a client began to differ from itself: the best split of its history in two."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedvitals.diagnose.cohorts import row_medians
from fedvitals.diagnose.robust import TO_SIGMA
from fedvitals.store.table import Floats, Ints

LEAST_BEFORE, LEAST_AFTER = 2, 4  # participations on each side of a split


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """For each client: where its history is best split (its first participation after), by how much the mean moves
    there, and that in standard deviations. The noise comes from successive differences, so a shift does not hide
    itself; a client is not taken for less noisy than the typical one, because a dozen differences tell its noise only
    roughly, and of many clients some always seem steady."""

    split: Ints
    shift: Floats
    score: Floats


def changes(histories: Floats, floor: float) -> Changes:
    """Of [clients, participations], NaN where there is none. `floor` is the least noise to believe in."""
    clients, width = histories.shape
    if width < LEAST_BEFORE + LEAST_AFTER:
        nothing = np.zeros(clients)
        return Changes(np.zeros(clients, np.int64), nothing, nothing)
    known = np.isfinite(histories)
    sums = np.cumsum(np.where(known, histories, 0.0), axis=1)
    counts = np.cumsum(known, axis=1)
    before, after = counts[:, :-1], counts[:, -1:] - counts[:, :-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        shifts = (sums[:, -1:] - sums[:, :-1]) / after - sums[:, :-1] / before
        errors = _noise(histories, floor)[:, None] * np.sqrt(1 / before + 1 / after)
        scores = np.where((before >= LEAST_BEFORE) & (after >= LEAST_AFTER), shifts / errors, 0.0)
    best = np.argmax(np.abs(np.nan_to_num(scores)), axis=1)
    every = np.arange(clients)
    return Changes(best + 1, np.nan_to_num(shifts[every, best]), np.nan_to_num(scores[every, best]))


def _noise(histories: Floats, floor: float) -> Floats:
    steps = np.abs(np.diff(histories, axis=1))
    own = TO_SIGMA * np.nan_to_num(row_medians(steps)) / np.sqrt(2)
    return np.asarray(np.maximum(own, max(floor, float(np.median(own)))))
