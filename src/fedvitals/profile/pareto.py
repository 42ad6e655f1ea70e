"""Trials that no other beats: the Pareto front of time, memory, bytes and accuracy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

NOISE = (0.02, 0.02, 0.0, 0.0)  # of a time and a memory, as they are measured once; bytes and rows are counted


@dataclass(frozen=True, slots=True)
class Trial:
    """One way to run a job, and what came of it; medians where it was run with several seeds."""

    values: tuple[tuple[str, str], ...]  # key and value, of what is varied
    runs: tuple[str, ...]
    wall_s: float | None
    round_s: float | None
    memory_bytes: float | None
    wire_bytes: float | None  # both ways
    accuracy: float | None
    problem: str | None = None  # why there is no result

    @property
    def costs(self) -> tuple[float, ...]:
        """What should be little; what is not known counts as bad."""
        told = (self.wall_s, self.memory_bytes, self.wire_bytes, None if self.accuracy is None else -self.accuracy)
        return tuple(math.inf if one is None else one for one in told)


def front(trials: Sequence[Trial]) -> tuple[bool, ...]:
    """For each trial whether it is on the front: no other is as good in everything and better in something."""
    return tuple(
        one.problem is None and not any(_beats(other.costs, one.costs) for other in trials if other.problem is None)
        for one in trials
    )


def _beats(other: Sequence[float], one: Sequence[float]) -> bool:
    """Time and memory are measured: what differs by less than the noise of measuring is as good."""
    pairs = [(a, b, noise * abs(b)) for a, b, noise in zip(other, one, NOISE, strict=True) if min(a, b) < math.inf]
    as_good = all(a <= b + (noise if b < math.inf else 0.0) for a, b, noise in pairs)
    return as_good and any(a < b - (noise if b < math.inf else 0.0) for a, b, noise in pairs)
