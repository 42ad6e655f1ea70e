"""A client that was noticed -> the participation from which on it looks as before again.

Clocks remember, and so do measures of a client's past: they ring on when what they rang for is over. So the end is read
from what a participation shows by itself, its scores in its own cohort. What they were while the client stood out, less
what they had been before, is a direction; how far along it each participation lies says on which side it is.
"""

from __future__ import annotations

import numpy as np

from fedvitals.diagnose.evidence.course import Course
from fedvitals.diagnose.evidence.measures import COHORT, SINGLE
from fedvitals.diagnose.evidence.steps import AFTER, BEFORE
from fedvitals.store.table import Ints

NOW = slice(len(SINGLE) + len(COHORT))  # features of a participation by itself: scores in the cohort, first of all
MOST = 5.0  # of a score: how far out it is says no more than that it is
HALF = 0.5  # of the way to what it was while it stood out
TINY = 1e-9


def until_the_end(found: Course, rows: Ints, noticed: Ints, peak: int) -> Ints:
    """Of the rows in which a client was noticed, those up to the last two of its participations in a row that are
    nearer to what it was until it stood highest than to what it had been before; all, unless two more came after."""
    scores = np.clip(np.nan_to_num(found.features[rows, NOW].astype(np.float64)), -MOST, MOST)
    first, top = np.searchsorted(rows, [min(int(noticed[0]), peak), peak])
    before = np.median(scores[:first], axis=0) if first >= BEFORE else np.zeros(scores.shape[1])
    way = scores[first : top + 1].mean(axis=0) - before
    unlike = (scores - before) @ way > HALF * max(float(way @ way), TINY)
    ends = np.flatnonzero(unlike[1:] & unlike[:-1]) + 1
    if not len(ends) or len(rows) - 1 - ends[-1] < AFTER:
        return noticed
    kept: Ints = noticed[noticed <= max(rows[ends[-1]], noticed[0])]
    return kept
