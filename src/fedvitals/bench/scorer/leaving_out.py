"""Lessons -> what the clocks show of each by scorers that never saw its family of rows.

Halves of lessons that are drawn alike tell how a scorer does on more of the same. What counts is data of a kind that
nobody thought of: so whole families are left out in turn, a third of them at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedvitals.bench.scorer.fitting import alarms
from fedvitals.bench.scorer.kinds import ALARMS
from fedvitals.bench.scorer.lessons import Learnt
from fedvitals.diagnose.evidence.suspicion import CLOCKS, watched

FOLDS = 3


def watched_unseen(lessons: Sequence[Learnt]) -> list[NDArray[np.float64]]:
    """[rows, alarms, clocks] of each lesson."""
    place = folds(lessons)
    found: list[NDArray[np.float64]] = [np.empty((0, len(ALARMS), len(CLOCKS)))] * len(lessons)
    for part in sorted(set(place)):
        scorers = alarms([one for one, own in zip(lessons, place, strict=True) if own != part])
        others = [index for index, own in enumerate(place) if own == part]
        for index in others:  # one by one: millions of rows at once take more memory than there is
            one = lessons[index]
            some = scorers.scores(one.features.astype(np.float32))
            found[index] = watched(some, one.client.astype(np.int64), one.attempt.astype(np.int64))
    return found


def folds(lessons: Sequence[Learnt]) -> list[int]:
    """To which part each lesson belongs: a data set is in one part, whatever model is trained on it, and the parts are
    dealt out by turns, the largest data sets first."""
    sets = [one.family.partition("_")[0] for one in lessons]
    order = [name for name, _ in sorted(Counter(sets).items(), key=lambda pair: (-pair[1], pair[0]))]
    return [order.index(name) % FOLDS for name in sets]
