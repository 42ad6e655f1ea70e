"""How the scorers do on lessons that they were not fitted on, as a table to read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedvitals.bench.scorer.calibration import highest_clock
from fedvitals.bench.scorer.kinds import EXACT
from fedvitals.bench.scorer.lessons import Learnt
from fedvitals.diagnose.evidence.limits import limits
from fedvitals.diagnose.evidence.suspicion import by_client, shipped, watched

Floats = NDArray[np.float64]


def by_shipped(lessons: Sequence[Learnt]) -> tuple[Sequence[Learnt], list[Floats]]:
    """The lessons, and the heights in each by the scorer that ships."""
    scorers = shipped()
    clocks = (
        watched(
            scorers.alarming.scores(one.features.astype(np.float32)), one.client.astype(int), one.attempt.astype(int)
        )
        for one in lessons
    )
    return lessons, [highest_clock(one, seen, scorers.thresholds) for one, seen in zip(lessons, clocks, strict=True)]


def told(lessons: Sequence[Learnt], heights: Sequence[Floats]) -> str:
    """A line a kind of fault: how many guilty clients were accused or suspected, and how many honest ones. `heights`
    are of each lesson [rows]."""
    counts: dict[str, Floats] = defaultdict(lambda: np.zeros(6))
    for one, seen in zip(lessons, heights, strict=True):
        if one.kind not in EXACT:
            counts[one.kind] += _counted(one, seen)
    lines = [f"{'kind':20} runs  clients accused suspect  honest accused suspect"]
    for kind, (runs, guilty, accused, suspected, wrong, wondered) in sorted(counts.items()):
        share = (accused / guilty, suspected / guilty) if guilty else (0.0, 0.0)
        lines.append(
            f"{kind:20} {runs:4.0f} {guilty:8.0f} {share[0]:7.2f} {share[1]:7.2f} {'':6} {wrong:7.0f} {wondered:7.0f}"
        )
    return "\n".join(lines)


def _counted(one: Learnt, heights: Floats) -> Floats:
    accuse, suspect = limits(by_client(heights, one.client.astype(np.int64)))
    accused, suspected = (heights >= level for level in (accuse, min(accuse, suspect)))
    guilty = np.unique(one.client[one.guilty])
    honest = np.setdiff1d(one.client, guilty)
    return np.array(
        [
            1.0,
            len(guilty),
            len(np.intersect1d(guilty, one.client[accused & one.guilty])),
            len(np.intersect1d(guilty, one.client[suspected & one.guilty])),
            len(np.intersect1d(honest, one.client[accused])),
            len(np.intersect1d(honest, one.client[suspected])),
        ]
    )
