"""What a search found, as a table and as a document: pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from fedvitals.profile.halving import Standing
from fedvitals.profile.pareto import Trial
from fedvitals.show.tables import Table
from fedvitals.show.words import NOTHING, fixed, safe, seconds, size

AS_IT_IS = (("job", "as it is"),)  # the values of a trial in which nothing was changed
COSTS = ("wall_s", "wire_bytes", "memory_bytes")


def optimised_table(title: str, own: Trial | None, points: Sequence[Trial], files: Sequence[str]) -> Table:
    """The job as it is, then a row a point, each with how many times as much it takes as the job."""
    named = dict(zip((one.runs for one in points), files, strict=True))
    others = [one for one in points if own is None or one.runs != own.runs]
    every = others if own is None else [own, *others]
    rows = tuple(_row(one, own, named.get(one.runs, "")) for one in every)
    columns = ("changed", "time", "bytes", "memory", "accuracy", "job file")
    return Table(title, columns, rows, frozenset({"changed", "job file"}))


def _row(one: Trial, own: Trial | None, file: str) -> tuple[str, ...]:
    base = None if own is one else own
    return (
        safe(described(one), 200),
        f"{seconds(one.wall_s)}{_times(one, base, 'wall_s')}",
        f"{size(one.wire_bytes)}{_times(one, base, 'wire_bytes')}",
        f"{size(one.memory_bytes)}{_times(one, base, 'memory_bytes')}",
        fixed(one.accuracy),
        safe(file) or NOTHING,
    )


def described(one: Trial) -> str:
    """What was changed in the job."""
    if one.values == AS_IT_IS:
        return "the job as it is"
    return " ".join(f"{key}={value}" for key, value in one.values)


def _times(one: Trial, own: Trial | None, cost: str) -> str:
    ratio = against(one, own).get(cost)
    return "" if ratio is None else f" ({ratio:.2g}x)"


def against(one: Trial, own: Trial | None) -> dict[str, float | None]:
    """Each cost as a multiple of what the job as it is took; None where either is not known."""
    return {cost: _ratio(getattr(one, cost), getattr(own, cost, None)) for cost in COSTS}


def _ratio(value: float | None, base: float | None) -> float | None:
    return None if value is None or not base else value / base


def standing_document(one: Standing, own: Trial | None, file: str | None) -> dict[str, Any]:
    """One trial in `optimise --json`; a point of the front has its file."""
    return {
        **asdict(one.trial),
        "values": dict(one.trial.values),
        "rounds": one.rounds,
        "reached": one.reached,
        "against": against(one.trial, own),
        "front": file is not None,
        "file": file,
    }
