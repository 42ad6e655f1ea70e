"""What a benchmark gives: rows of a measured value, its spread, and the goal it is held to."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement. `low` and `high` are its spread; `goal` None: only told."""

    case: str
    measure: str
    value: float
    low: float
    high: float
    unit: str
    goal: float | None = None
    at_least: bool = True  # False: the goal is a most

    def document(self) -> dict[str, Any]:
        """For programs."""
        keys = ("case", "measure", "value", "low", "high", "unit", "goal")
        return {key: getattr(self, key) for key in keys}

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached; None without one."""
        if self.goal is None:
            return None
        return self.value >= self.goal if self.at_least else self.value <= self.goal


def document(bench: str, rows: Sequence[Row]) -> str:
    """The rows of a bench as a file for programs."""
    said = {"schema_version": 1, "bench": bench, "rows": [row.document() for row in rows]}
    return json.dumps(said, indent=1) + "\n"


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, and the 10th and 90th percentile."""
    ordered = sorted(values)
    return _percentile(ordered, 50), _percentile(ordered, 10), _percentile(ordered, 90)


def _percentile(ordered: Sequence[float], percent: float) -> float:
    if not ordered:
        return math.nan
    place = (len(ordered) - 1) * percent / 100
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
