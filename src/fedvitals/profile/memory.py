"""Where memory went: records -> memory over time, peaks and growth a phase and a client, tensors, allocations, devices.

A pure function over a run's reader. Numbers that came from a client's own process are that process's; nothing here is
summed over processes. What a client reported of itself is read with care: a list that is not three counts is left out.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from numpy.typing import NDArray

from fedvitals.store.protocol import RunReader
from fedvitals.vocabulary import ResourceSample, Span

TENSORS, ALLOCATIONS = "fl.tensors", "fl.allocations"
MOST_POINTS = 2_000
_LARGEST = 1 << 62


@dataclass(frozen=True, slots=True)
class Measured:
    """Memory over one phase or participation: at its start, at its highest, at its end."""

    name: str  # the phase, by the user's own name; `client` for a whole participation
    round: int | None
    client: str | None
    attempt: int | None
    start_ns: int
    end_ns: int
    start_bytes: int
    peak_bytes: int
    end_bytes: int
    sampled: bool = False
    shared: bool = False

    @property
    def rise_bytes(self) -> int:
        """How far above its start it went."""
        return self.peak_bytes - self.start_bytes

    @property
    def growth_bytes(self) -> int:
        """What it left behind; less than 0 where it freed more than it took."""
        return self.end_bytes - self.start_bytes


@dataclass(frozen=True, slots=True)
class Total:
    """All stretches of one phase, or of one client."""

    name: str
    count: int
    peak_bytes: int
    rise_bytes: int  # the largest
    growth_bytes: int  # of all together
    sampled: int  # how many are from samples
    shared: int  # how many overlapped with other threads' phases


@dataclass(frozen=True, slots=True)
class Tensors:
    """What a model's tensors take; None where there was nothing to count from."""

    round: int | None
    client: str | None  # None: the global model
    parameters_bytes: int
    gradients_bytes: int | None
    buffers_bytes: int | None
    optimizer_bytes: int | None


class Operation(NamedTuple):
    name: str
    calls: int
    cpu_bytes: int
    device_bytes: int


@dataclass(frozen=True, slots=True)
class Allocations:
    """One table that was asked for."""

    name: str
    round: int | None
    client: str | None
    start_ns: int
    end_ns: int | None
    operations: tuple[Operation, ...]
    left_out: int
    not_profiled: str | None


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator over the run."""

    name: str
    peak_bytes: int | None
    total_bytes: int | None
    busy_ratio: float | None  # mean of the samples
    samples: int


class Point(NamedTuple):
    at_ns: int
    rss_bytes: int
    peak_bytes: int  # so far


@dataclass(frozen=True, slots=True)
class MemoryProfile:
    """One run's memory. Points, phases and clients are empty where nothing was measured."""

    points: tuple[Point, ...]  # of the recording process, in order
    peak_bytes: int | None
    growth_bytes: int | None  # from the first point to the last
    limit_bytes: int | None  # what the machine or the container has
    phases: tuple[Total, ...]  # the largest rise first
    clients: tuple[Total, ...]
    top: tuple[Measured, ...]  # single phases, the largest rise first
    tensors: tuple[Tensors, ...]
    allocations: tuple[Allocations, ...]
    devices: tuple[Device, ...]
    how: str  # exact, sampled or off; "" in runs of older versions
    skipped: int  # phases that the budget had no room for


def memory_profile(reader: RunReader, *, top: int = 10) -> MemoryProfile:
    """All that the run tells of memory."""
    run, spans, samples = reader.run(), reader.spans(), reader.resources()
    stretches = [one for span in spans if (one := _of_span(span)) is not None]
    sessions = list(_sessions(reader.participation_columns((*_WHOSE, "metrics"))))
    points = _points([one for one in samples if one.device is None])
    health = run.health.get("memory")
    health = health if isinstance(health, Mapping) else {}
    return MemoryProfile(
        points=points,
        peak_bytes=_peak(points, stretches, sessions),
        growth_bytes=points[-1].rss_bytes - points[0].rss_bytes if points else None,
        limit_bytes=_count(run.environment.get("memory_bytes")),
        phases=_totals(stretches, lambda one: one.name),
        clients=_totals(sessions, lambda one: one.client or ""),
        top=tuple(sorted(stretches, key=lambda one: (-one.rise_bytes, one.start_ns))[:top]),
        tensors=tuple(_tensors(span) for span in spans if span.name == TENSORS),
        allocations=tuple(_allocations(span) for span in spans if span.name == ALLOCATIONS),
        devices=_devices([one for one in samples if one.device is not None]),
        how=str(health.get("how", "")),
        skipped=_count(health.get("skipped")) or 0,
    )


def _of_span(span: Span) -> Measured | None:
    if span.attributes is None or '"rss_bytes"' not in span.attributes:
        return None
    told = _object(span.attributes)
    name = told.get("name") if span.name == "other" else None
    return _measured(
        told,
        name=name if isinstance(name, str) else span.name,
        round=span.round,
        client=span.client,
        attempt=span.attempt,
        start_ns=span.start_ns,
        end_ns=span.start_ns if span.end_ns is None else span.end_ns,
    )


_WHOSE = ("round", "client", "attempt", "start_ns", "end_ns")


def _sessions(columns: Mapping[str, NDArray[Any]]) -> Iterator[Measured]:
    """Whole participations: by column, because most tell nothing."""
    for row, metrics in enumerate(columns["metrics"].tolist()):
        if metrics is not None and '"rss_bytes"' in metrics:
            values = {name: columns[name][row : row + 1].tolist()[0] for name in _WHOSE}
            one = _measured(_object(metrics), name="client", **values)
            if one is not None:
                yield one


def _measured(told: Mapping[str, Any], **where: Any) -> Measured | None:
    numbers = told.get("rss_bytes")
    if not isinstance(numbers, list) or len(numbers) != 3 or any(_count(one) is None for one in numbers):
        return None
    start, peak, end = numbers
    if peak < max(start, end):
        return None
    sampled, shared = told.get("rss_sampled") is True, told.get("rss_shared") is True
    return Measured(start_bytes=start, peak_bytes=peak, end_bytes=end, sampled=sampled, shared=shared, **where)


def _object(text: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < _LARGEST else None


def _points(samples: Sequence[ResourceSample]) -> tuple[Point, ...]:
    """In order; of too many, the first and the last and an even choice of the others."""
    ordered = sorted(samples, key=lambda one: one.at_ns)
    if len(ordered) > MOST_POINTS:
        step = (len(ordered) - 1) / (MOST_POINTS - 1)
        ordered = [ordered[round(place * step)] for place in range(MOST_POINTS)]
    return tuple(Point(one.at_ns, one.rss_bytes, one.peak_rss_bytes) for one in ordered)


def _peak(points: Sequence[Point], *measured: Iterable[Measured]) -> int | None:
    """The highest anybody saw."""
    found = [one.peak_bytes for one in points] + [one.peak_bytes for some in measured for one in some]
    return max(found, default=None)


def _totals(stretches: Sequence[Measured], key: Callable[[Measured], str]) -> tuple[Total, ...]:
    groups: dict[str, list[Measured]] = defaultdict(list)
    for one in stretches:
        groups[key(one)].append(one)
    totals = (
        Total(
            name=name,
            count=len(own),
            peak_bytes=max(one.peak_bytes for one in own),
            rise_bytes=max(one.rise_bytes for one in own),
            growth_bytes=sum(one.growth_bytes for one in own),
            sampled=sum(one.sampled for one in own),
            shared=sum(one.shared for one in own),
        )
        for name, own in groups.items()
    )
    return tuple(sorted(totals, key=lambda one: (-one.rise_bytes, one.name)))


def _tensors(span: Span) -> Tensors:
    told = _object(span.attributes or "{}")
    return Tensors(
        round=span.round,
        client=span.client,
        parameters_bytes=_count(told.get("parameters_bytes")) or 0,
        gradients_bytes=_count(told.get("gradients_bytes")),
        buffers_bytes=_count(told.get("buffers_bytes")),
        optimizer_bytes=_count(told.get("optimizer_bytes")),
    )


def _allocations(span: Span) -> Allocations:
    told = _object(span.attributes or "{}")
    rows = told.get("operations")
    name, why = told.get("name"), told.get("not_profiled")
    return Allocations(
        name=name if isinstance(name, str) else span.name,
        round=span.round,
        client=span.client,
        start_ns=span.start_ns,
        end_ns=span.end_ns,
        operations=tuple(_operations(rows if isinstance(rows, list) else [])),
        left_out=_count(told.get("operations_left_out")) or 0,
        not_profiled=why if isinstance(why, str) else None,
    )


def _operations(rows: Sequence[Any]) -> Iterator[Operation]:
    for row in rows:
        if isinstance(row, list) and [type(value) for value in row] == [str, int, int, int]:
            yield Operation(*row)


def _devices(samples: Sequence[ResourceSample]) -> tuple[Device, ...]:
    groups: dict[str, list[ResourceSample]] = defaultdict(list)
    for one in samples:
        groups[str(one.device)].append(one)
    return tuple(_device(name, own) for name, own in sorted(groups.items()))


def _device(name: str, samples: Sequence[ResourceSample]) -> Device:
    busy = [one.device_busy_ratio for one in samples if one.device_busy_ratio is not None]
    return Device(
        name=name,
        peak_bytes=_highest(one.device_peak_bytes for one in samples),
        total_bytes=_highest(one.device_total_bytes for one in samples),
        busy_ratio=sum(busy) / len(busy) if busy else None,
        samples=len(samples),
    )


def _highest(values: Iterable[int | None]) -> int | None:
    return max((one for one in values if one is not None), default=None)
