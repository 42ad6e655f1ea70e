"""A run's memory in words."""

from __future__ import annotations

from fedvitals.profile.memory import Allocations, Device, MemoryProfile, Operation, Point, Tensors, Total
from fedvitals.show.memories import memory_document, memory_lines, memory_tables, skipped_line

MB = 1_000_000


def _memory() -> MemoryProfile:
    return MemoryProfile(
        points=tuple(Point(at, 100 * MB, 200 * MB) for at in range(1000)),
        peak_bytes=200 * MB,
        growth_bytes=-3 * MB,
        limit_bytes=8000 * MB,
        phases=(Total("aggregate", 4, 200 * MB, 90 * MB, 2 * MB, 0, 0),),
        clients=(Total("a\x1b[2J", 1, 150 * MB, 5 * MB, -1 * MB, 0, 0),),
        top=(),
        tensors=(Tensors(None, None, 4 * MB, 4 * MB, None, 8 * MB),),
        allocations=(Allocations("two steps", 0, None, 0, 9, (Operation("aten::mm", 7, 3 * MB, 0),), 0, None),),
        devices=(Device("cuda:0", 500 * MB, 1000 * MB, 0.5, 9),),
        how="exact",
        skipped=3,
    )


def test_memory_is_told_in_lines() -> None:
    """The process with its limit, the model's tensors, and each device."""
    assert memory_lines(_memory()) == [
        ("memory", "at most 200.0 MB, of 8.0 GB, -3.0 MB from first to last"),
        ("tensors", "parameters 4.0 MB, gradients 4.0 MB, optimizer 8.0 MB"),
        ("cuda:0", "at most 500.0 MB of 1.0 GB, busy 50% of the time"),
    ]
    assert skipped_line(_memory()) == "3 phases too short to measure within the budget"


def test_memory_is_told_in_tables() -> None:
    """By phase, by client (whose name cannot move the terminal), and by operation."""
    phases, clients, operations = memory_tables(_memory())
    assert phases.rows == (("aggregate", "4", "200.0 MB", "+90.0 MB", "+2.0 MB"),)
    assert clients.rows[0][0] == "a\\x1b[2J"
    assert operations.rows == (("aten::mm", "7", "3.0 MB", "0 B"),)


def test_programs_get_a_bounded_document() -> None:
    """However long the run."""
    document = memory_document(_memory())
    assert len(document["points"]) == 200
    assert document["phases"][0]["rise_bytes"] == 90 * MB
    assert document["allocations"][0]["operations"][0]["name"] == "aten::mm"
