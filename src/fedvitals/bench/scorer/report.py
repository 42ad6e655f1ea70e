"""How the scorers do on lessons that they were not fitted on, as a table to read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedvitals.bench.scorer.kinds import EXACT
from fedvitals.bench.scorer.lessons import Learnt

Floats = NDArray[np.float64]


def told(lessons: Sequence[Learnt], clocks: Sequence[Floats], accuse: Floats, suspect: Floats) -> str:
    """A line a kind of fault: how many guilty clients were accused or suspected, and how many honest ones."""
    counts: dict[str, Floats] = defaultdict(lambda: np.zeros(6))
    for one, seen in zip(lessons, clocks, strict=True):
        if one.kind not in EXACT:
            counts[one.kind] += _counted(one, seen, accuse, suspect)
    lines = [f"{'kind':20} runs  clients accused suspect  honest accused suspect"]
    for kind, (runs, guilty, accused, suspected, wrong, wondered) in sorted(counts.items()):
        share = (accused / guilty, suspected / guilty) if guilty else (0.0, 0.0)
        lines.append(
            f"{kind:20} {runs:4.0f} {guilty:8.0f} {share[0]:7.2f} {share[1]:7.2f} {'':6} {wrong:7.0f} {wondered:7.0f}"
        )
    return "\n".join(lines)


def _counted(one: Learnt, seen: Floats, accuse: Floats, suspect: Floats) -> Floats:
    accused = (seen >= accuse).any(axis=(1, 2))
    suspected = (seen >= suspect).any(axis=(1, 2)) | accused
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
