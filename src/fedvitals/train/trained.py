"""What executors give back: trained clients, one or a batch, and those that failed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from torch import Tensor

from fedvitals.faults.work import LocalWork


class SampledStep(NamedTuple):
    """Gradient statistics of one step, of the clients in `slots`."""

    step: int
    slots: tuple[int, ...]
    stats: np.ndarray  # [slots, layers, fields]


@dataclass(slots=True, eq=False)
class Trained:
    """Clients that finished. Times are seconds and the clock's nanoseconds, a value a client."""

    works: tuple[LocalWork, ...]
    updates: Tensor  # [clients, size]
    losses: np.ndarray  # [clients, most steps], NaN beyond a client's own
    steps: np.ndarray  # [clients]
    samples: np.ndarray  # [clients]
    train_s: np.ndarray
    load_s: np.ndarray
    start_ns: Sequence[int]
    end_ns: Sequence[int]
    sampled: tuple[SampledStep, ...] = ()
    integers: tuple[Mapping[str, Tensor], ...] = ()  # a client's counted buffers, where the model has any
    peak_memory_bytes: int = 0
    attributed: bool = False  # times are shares of a batch's
    chunk: int = 0
    slots: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """A client that did not finish."""

    work: LocalWork
    stage: str
    kind: str
    message: str
    traceback: str | None
    start_ns: int
    end_ns: int


class Executor(Protocol):
    """Carries out planned work. The same work gives the same updates on every executor, up to the last bits."""

    name: str

    def run(
        self, works: Sequence[LocalWork], weights: Tensor, integers: Mapping[str, Tensor]
    ) -> Iterator[Trained | Failed]:
        """Train these clients from these weights; results come as they are ready."""

    def close(self) -> None:
        """Give back processes and memory."""
