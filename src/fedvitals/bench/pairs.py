"""Two ways of doing the same, measured side by side: alternating, so that a noisy machine is noisy to both."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import NamedTuple


class Cost(NamedTuple):
    wall_s: float
    cpu_s: float  # of the whole process, every thread


def cost(work: Callable[[], object]) -> Cost:
    """What one go takes. The garbage of the go before is collected first, at nobody's expense."""
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Cost(time.perf_counter() - wall, time.process_time() - cpu)


def pairs(plain: Callable[[], object], other: Callable[[], object], count: int) -> list[tuple[Cost, Cost]]:
    """`count` pairs (plain, other); who goes first alternates, because the second finds warmer caches."""
    measured = []
    for number in range(count):
        if number % 2:
            second = cost(other)
            measured.append((cost(plain), second))
        else:
            first = cost(plain)
            measured.append((first, cost(other)))
    return measured
