"""How much more a small client's numbers scatter than a large one's: what an honest client of its size does by chance.

A mean over n rows scatters as n to the power of -1/2; how much of a measure is such a mean is a matter of the model and
of the training. So the power is fitted, a measure each, from all rounds so far: the line through how far clients are
from the median of their cohort, over how many rows they have, both as logarithms.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedvitals.store.table import Floats

STEEPEST = 0.75  # a mean would be 0.5; beyond this it is chance
DOUBT = 20.0  # as if so much evidence had been seen that size does not matter
NEAR = 0.02  # distances below this are all the same
WIDEST = np.log(8.0)  # nobody's scatter is taken for more than so many times the usual, nor for less


class Sizes:
    """Running sums of the line's slope, a column a measure."""

    def __init__(self, measures: int) -> None:
        self.together = np.zeros(measures)
        self.alone = DOUBT

    def at(self, larger: Floats) -> Widened:
        """For a cohort of these sizes: log rows over the cohort's median."""
        return Widened(self, np.nan_to_num(larger))


@dataclass(frozen=True, slots=True, eq=False)
class Widened:
    """By what the spread of each client of one cohort is to be multiplied, measure by measure."""

    sizes: Sizes
    larger: Floats  # [cohort]

    def __call__(self, away: Floats) -> Floats:
        """[cohort, measures], or what goes with that."""
        if not self._uneven:
            return np.ones((1, away.shape[1]))
        power = np.clip(-self.sizes.together / self.sizes.alone, 0.0, STEEPEST)
        found: Floats = np.exp(np.clip(np.outer(-self.larger, power), -WIDEST, WIDEST))
        return found

    def taken_in(self, away: Floats) -> Floats:
        """The same, after these distances have been added to what is known."""
        if self._uneven:
            far = np.where(np.isnan(away), np.nan, np.log(np.abs(np.nan_to_num(away)) + NEAR))
            far = np.nan_to_num(far - np.nansum(far, axis=0) / np.maximum((~np.isnan(far)).sum(axis=0), 1))
            across = self.larger - self.larger.mean()
            self.sizes.together += across @ far
            self.sizes.alone += float(across @ across)
        return self(away)

    @property
    def _uneven(self) -> bool:
        return bool(np.ptp(self.larger) > NEAR)
