"""Time for the engine: the machine's, or a virtual one on which slow devices cost nothing and repeats agree."""

from __future__ import annotations

import math
import time
from typing import Protocol, runtime_checkable


@runtime_checkable
class Clock(Protocol):
    """What the engine asks for the time, and how it waits."""

    def now_ns(self) -> int:
        """Nanoseconds since some fixed instant; never goes back."""

    def sleep(self, seconds: float) -> None:
        """Return when that much time has passed on this clock."""


class RealClock:
    """The machine's monotonic clock."""

    def now_ns(self) -> int:
        return time.perf_counter_ns()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class VirtualClock:
    """Begins at 0 and moves only when told to; sleeping moves it and takes no time."""

    def __init__(self) -> None:
        self._now_ns = 0

    def now_ns(self) -> int:
        return self._now_ns

    def advance(self, seconds: float) -> None:
        """Let so much time pass."""
        if not (0 <= seconds < math.inf):
            raise ValueError(f"a clock cannot move by {seconds!r} seconds; it takes a finite number >= 0")
        self._now_ns += round(seconds * 1e9)

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)
