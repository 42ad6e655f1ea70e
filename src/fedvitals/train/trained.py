"""What executors give back: trained clients, one or a batch, and those that failed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from fedvitals.faults.work import LocalWork


class SampledStep(NamedTuple):
    """Gradient statistics of one step, of the clients in `slots`."""

    step: int
    slots: Sequence[int]
    stats: np.ndarray  # [slots, layers, fields]


class Learnt(NamedTuple):
    """What a batch of clients comes back with."""

    order: Sequence[int]  # of the clients that were handed in: these are the rows below
    updates: Tensor  # [clients, size]
    losses: np.ndarray  # [clients, most steps], NaN beyond a client's own
    steps: np.ndarray  # [clients]
    sampled: tuple[SampledStep, ...]


@dataclass(slots=True, eq=False)
class Trained:
    """Clients that finished. Times are seconds and the clock's nanoseconds, a value a client."""

    works: tuple[LocalWork, ...]
    updates: Tensor  # [clients, size]
    losses: np.ndarray  # [clients, most steps], NaN beyond a client's own
    steps: np.ndarray  # [clients]
    samples: np.ndarray  # [clients]
    phases_s: dict[str, np.ndarray]  # `upload` is what a slow link adds; 0 where links are not imitated
    start_ns: Sequence[int]
    end_ns: Sequence[int]
    sampled: tuple[SampledStep, ...] = ()
    integers: tuple[Mapping[str, Tensor], ...] = ()  # a client's counted buffers, where the model has any
    peak_memory_bytes: int | list[int] = 0  # of the process that trained them; a list where there were several
    attributed: bool = False  # times are shares of a batch's
    chunk: int = 0
    slots: Sequence[int] = ()


def part(trained: Trained, rows: Sequence[int]) -> Trained:
    """Some of the clients of a batch."""
    where = {row: i for i, row in enumerate(rows)}
    sampled = []
    for sample in trained.sampled:
        kept = [i for i, slot in enumerate(sample.slots) if slot in where]
        if kept:
            slots = tuple(where[sample.slots[i]] for i in kept)
            sampled.append(sample._replace(slots=slots, stats=sample.stats[kept]))
    return replace(
        trained,
        works=tuple(trained.works[i] for i in rows),
        updates=trained.updates[rows],
        losses=trained.losses[rows],
        steps=trained.steps[rows],
        samples=trained.samples[rows],
        phases_s={phase: seconds[rows] for phase, seconds in trained.phases_s.items()},
        start_ns=[trained.start_ns[i] for i in rows],
        end_ns=[trained.end_ns[i] for i in rows],
        sampled=tuple(sampled),
        integers=tuple(trained.integers[i] for i in rows) if trained.integers else (),
        peak_memory_bytes=[_peaks(trained)[i] for i in rows],
        slots=[trained.slots[i] for i in rows],
    )


def joined(some: Sequence[Trained]) -> Trained:
    """Several results of clients that were trained one by one, as one."""
    if len(some) == 1:
        return some[0]
    most = max(one.losses.shape[1] for one in some)
    offsets = np.cumsum([0, *(len(one.works) for one in some)])
    return Trained(
        works=tuple(work for one in some for work in one.works),
        updates=torch.cat([one.updates for one in some]),
        losses=np.concatenate([_widened(one.losses, most) for one in some]),
        steps=np.concatenate([one.steps for one in some]),
        samples=np.concatenate([one.samples for one in some]),
        phases_s={phase: np.concatenate([one.phases_s[phase] for one in some]) for phase in some[0].phases_s},
        start_ns=[ns for one in some for ns in one.start_ns],
        end_ns=[ns for one in some for ns in one.end_ns],
        sampled=_joined_samples(some, offsets.tolist()),
        integers=tuple(values for one in some for values in one.integers),
        peak_memory_bytes=[peak for one in some for peak in _peaks(one)],
        attributed=some[0].attributed,
        chunk=some[0].chunk,
        slots=[slot for one in some for slot in one.slots],
    )


def _peaks(trained: Trained) -> list[int]:
    known = trained.peak_memory_bytes
    return known if isinstance(known, list) else [known] * len(trained.works)


def _widened(losses: np.ndarray, width: int) -> np.ndarray:
    missing = width - losses.shape[1]
    return np.pad(losses, ((0, 0), (0, missing)), constant_values=np.nan) if missing else losses


def _joined_samples(some: Sequence[Trained], offsets: Sequence[int]) -> tuple[SampledStep, ...]:
    """Steps with the same number as one; their clients follow each other."""
    found: dict[int, list[SampledStep]] = {}
    for one, offset in zip(some, offsets, strict=False):
        for sample in one.sampled:
            slots = tuple(slot + offset for slot in sample.slots)
            found.setdefault(sample.step, []).append(sample._replace(slots=slots))
    return tuple(
        SampledStep(step, tuple(slot for one in parts for slot in one.slots), np.concatenate([p.stats for p in parts]))
        for step, parts in found.items()
    )


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
