"""Times as a sum of costs that are not negative, fitted so that a few slow ones do not count."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedvitals.store.table import Floats

PASSES = 8
TUNING = 1.5  # residuals beyond so many median ones count less


class Fit(NamedTuple):
    """Seconds for one of each column, and how sure they are."""

    seconds: Floats
    covariance: Floats

    def sure_s(self, amounts: Floats) -> float:
        """The standard error of the seconds that these amounts take."""
        return float(np.sqrt(np.maximum(amounts @ self.covariance @ amounts, 0.0)))


def fitted(amounts: Floats, took_s: Floats) -> Fit | None:
    """Relative errors count: a long one may be further off. None where the columns cannot be told apart."""
    known = np.isfinite(amounts).all(axis=1) & np.isfinite(took_s) & (took_s > 0)
    amounts, took_s = amounts[known], took_s[known]
    if len(took_s) < 2 * amounts.shape[1]:
        return None
    scaled = amounts / took_s[:, None]
    lengths = np.linalg.norm(scaled, axis=0)
    if (lengths == 0).any() or np.linalg.cond(scaled / lengths) > 1e6:
        return None
    weights = np.ones(len(took_s))
    found = np.zeros(amounts.shape[1])
    for _ in range(PASSES):
        found = _solved(scaled * weights[:, None], weights)
        off = np.abs(scaled @ found - 1.0)
        usual = max(float(np.median(off)), 1e-9)
        weights = np.sqrt(np.minimum(1.0, TUNING * usual / np.maximum(off, 1e-12)))
    rest = (scaled @ found - 1.0) * weights
    spread = float(rest @ rest) / max(len(took_s) - amounts.shape[1], 1)
    normal = (scaled * weights[:, None]).T @ (scaled * weights[:, None])
    return Fit(found, spread * np.linalg.pinv(normal))


def _solved(columns: Floats, wanted: Floats) -> Floats:
    """Least squares with costs that are not negative; few columns, so the worst one is left out until none is."""
    kept = list(range(columns.shape[1]))
    while True:
        some = np.linalg.lstsq(columns[:, kept], wanted, rcond=None)[0]
        if len(kept) == 1 or (some >= 0).all():
            break
        kept.pop(int(np.argmin(some)))
    found = np.zeros(columns.shape[1])
    found[kept] = np.maximum(some, 0.0)
    return found
