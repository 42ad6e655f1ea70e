"""Time for the engine: the machine's, or a virtual one on which slow devices cost nothing and repeats agree."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

BACKWARD_AND_FORWARD_FLOP = 6  # a parameter a row: a multiply and an add forward, twice that backward


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


@dataclass(frozen=True, slots=True)
class NominalDevice:
    """How long a client's work takes on the virtual clock: a modest phone on a home network.

    The constants are for comparing runs with each other, not a forecast for anyone's device. `compute_factor` and
    `link_factor` are those of the client's `LocalWork`: how many times slower than this it is.
    """

    flop_per_s: float = 1e9  # as achieved by small batches, far below what the chip could
    link_bits_per_s: float = 100e6  # both ways
    latency_s: float = 0.020  # of one transfer

    def download_s(self, size_bytes: int, link_factor: float = 1.0) -> float:
        return self._transfer_s(size_bytes, link_factor)

    def upload_s(self, size_bytes: int, link_factor: float = 1.0) -> float:
        return self._transfer_s(size_bytes, link_factor)

    def train_s(self, steps: int, batch_rows: float, parameters: int, compute_factor: float = 1.0) -> float:
        """`batch_rows` is the mean over the steps where the last batch is smaller."""
        flop = BACKWARD_AND_FORWARD_FLOP * parameters * batch_rows * steps
        return compute_factor * flop / self.flop_per_s

    def _transfer_s(self, size_bytes: int, link_factor: float) -> float:
        return link_factor * (self.latency_s + 8 * size_bytes / self.link_bits_per_s)
