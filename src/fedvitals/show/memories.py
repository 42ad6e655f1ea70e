"""A run's memory to words and to a document: pure functions, for the command line and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from fedvitals.profile.memory import MemoryProfile, Tensors, Total
from fedvitals.show.tables import Table
from fedvitals.show.words import NOTHING, plural, safe, size

MOST_POINTS = 200  # of a document
MOST_ROWS = 12
MOST_OPERATIONS = 8


def memory_document(memory: MemoryProfile) -> dict[str, Any]:
    """What `profile --json` has under `memory`."""
    every = max(-(-len(memory.points) // MOST_POINTS), 1)
    return {
        "peak_bytes": memory.peak_bytes,
        "growth_bytes": memory.growth_bytes,
        "limit_bytes": memory.limit_bytes,
        "how": memory.how,
        "skipped": memory.skipped,
        "phases": [asdict(one) for one in memory.phases],
        "clients": [asdict(one) for one in memory.clients],
        "tensors": [asdict(one) for one in memory.tensors],
        "allocations": [
            {**asdict(one), "operations": [each._asdict() for each in one.operations]} for one in memory.allocations
        ],
        "devices": [asdict(one) for one in memory.devices],
        "points": [one._asdict() for one in memory.points[::every]],
    }


def memory_lines(memory: MemoryProfile) -> list[tuple[str, str]]:
    """The process, the model and the devices, a line each."""
    lines = []
    if memory.peak_bytes is not None:
        grown = "" if memory.growth_bytes is None else f", {_signed(memory.growth_bytes)} from first to last"
        limit = "" if memory.limit_bytes is None else f", of {size(memory.limit_bytes)}"
        lines.append(("memory", f"at most {size(memory.peak_bytes)}{limit}{grown}"))
    if memory.tensors:
        lines.append(("tensors", _tensors(max(memory.tensors, key=lambda one: one.parameters_bytes))))
    for device in memory.devices:
        busy = "" if device.busy_ratio is None else f", busy {device.busy_ratio:.0%} of the time"
        lines.append((safe(device.name), f"at most {size(device.peak_bytes)} of {size(device.total_bytes)}{busy}"))
    return lines


def memory_tables(memory: MemoryProfile) -> list[Table]:
    """By phase, by client, and the operations that were asked about."""
    tables = [_totals("memory by phase", "phase", memory.phases), _totals("memory by client", "client", memory.clients)]
    for one in memory.allocations:
        rows = tuple(
            (safe(each.name, 60), f"{each.calls:,}", size(each.cpu_bytes), size(each.device_bytes))
            for each in one.operations[:MOST_OPERATIONS]
        )
        title = f"allocations in {safe(one.name)}"
        tables.append(Table(title, ("operation", "calls", "host", "device"), rows, frozenset({"operation"})))
    return [table for table in tables if table.rows]


def _totals(title: str, column: str, totals: Sequence[Total]) -> Table:
    rows = tuple(
        (safe(one.name), f"{one.count:,}", size(one.peak_bytes), _signed(one.rise_bytes), _signed(one.growth_bytes))
        for one in totals[:MOST_ROWS]
    )
    return Table(title, (column, "measured", "peak", "largest rise", "left behind"), rows, frozenset({column}))


def _tensors(one: Tensors) -> str:
    parts = [("parameters", one.parameters_bytes), ("gradients", one.gradients_bytes)]
    parts += [("buffers", one.buffers_bytes), ("optimizer", one.optimizer_bytes)]
    return ", ".join(f"{name} {size(value)}" for name, value in parts if value is not None)


def _signed(value: int | None) -> str:
    if value is None:
        return NOTHING
    return f"{'-' if value < 0 else '+'}{size(abs(value))}"


def skipped_line(memory: MemoryProfile) -> str | None:
    """What the budget had no room for."""
    if not memory.skipped:
        return None
    return f"{plural(memory.skipped, 'phase')} too short to measure within the budget"
