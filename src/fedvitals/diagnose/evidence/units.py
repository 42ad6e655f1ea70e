"""What an update does to the output units: which of them its last matrix pushes, which way and how far."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedvitals.diagnose.chart import NORM, Updates
from fedvitals.store.table import Floats

TINY = 1e-12
Numbers = NDArray[np.floating]  # single precision where there are many


def pushed_units(updates: Updates) -> Floats | None:
    """[participations, units]: the signed sums of the last matrix's rows, as a direction."""
    if updates.unit_norms is None or updates.unit_sums is None or not updates.unit_norms.shape[1]:
        return None
    return updates.unit_norms.astype(np.float64) * updates.unit_sums.astype(np.float64)


def pushes(updates: Updates) -> Numbers | None:
    """[participations, units]: the sums of the last matrix's rows. Once a model knows its classes an honest client
    pushes little, whatever classes it holds; one whose labels are wrong pushes as far as ever, and the same units."""
    layer = updates.layout.unit_layer
    if updates.unit_sums is None or not updates.unit_sums.shape[1] or layer is None:
        return None
    with np.errstate(invalid="ignore"):  # of updates that are not finite
        found: Numbers = updates.unit_sums * updates.stats[:, layer, NORM, None]
    return found


def pushed_rows(updates: Updates) -> Numbers | None:
    """[participations, units * buckets]: sketches of the last matrix's rows, as one direction."""
    if updates.unit_norms is None or updates.unit_sketches is None or not updates.unit_norms.shape[1]:
        return None
    found: Numbers = updates.unit_sketches * updates.unit_norms[:, :, None]
    return found.reshape(len(found), -1)


def correlation(a: Floats, b: Floats) -> Floats:
    """Of each row with the same row of the other."""
    a = a - a.mean(axis=1, keepdims=True)
    b = b - b.mean(axis=1, keepdims=True)
    lengths = np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1))
    found: Floats = (a * b).sum(axis=1) / np.maximum(lengths, TINY)
    return found
