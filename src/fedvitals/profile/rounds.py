"""Rounds: how long each took, where its time went, and who held it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedvitals.profile.oddities import in_rounds
from fedvitals.profile.path import Path
from fedvitals.profile.phases import ALL
from fedvitals.profile.timeline import NOBODY, Timeline
from fedvitals.store.table import Floats, Ints
from fedvitals.vocabulary import Outcome


@dataclass(frozen=True, slots=True)
class RoundProfile:
    """One round."""

    number: int
    start_s: float
    wall_s: float
    breakdown_s: Mapping[str, float]  # of its wall time, by phase; they add up to it
    holder: str | None  # the client that worked longest while no other did; None where all are one batch
    held_s: float  # for how long
    clients: int  # participations
    asked: int  # clients, where more were asked than are heard of
    failed: int
    late: int
    bytes_up: float | None  # over the wire
    bytes_down: float | None
    raw_bytes_up: float | None  # uncompressed
    raw_bytes_down: float | None


def round_profiles(timeline: Timeline, path: Path, phases: Floats, alone: Floats) -> tuple[RoundProfile, ...]:
    """In the order in which they began."""
    table, works = timeline.participations, timeline.works
    synchronous = in_rounds(table)
    found = []
    for one in timeline.rounds:
        end_ns = one.end_ns or one.start_ns
        first, last = np.searchsorted(path.start_ns, [one.start_ns, end_ns])
        rows = slice(*np.searchsorted(table.round, [one.number, one.number + 1]).tolist())
        own = np.flatnonzero((works.round == one.number) & (works.client != NOBODY))
        holder = own[int(np.argmax(alone[own]))] if len(own) and alone[own].max() > 0 else None
        outcome = table.outcome[rows]
        found.append(
            RoundProfile(
                number=one.number,
                start_s=one.start_ns / 1e9,
                wall_s=(end_ns - one.start_ns) / 1e9,
                breakdown_s=by_phase(phases[first:last]),
                holder=None if holder is None else timeline.clients[int(works.client[holder])],
                held_s=0.0 if holder is None else float(alone[holder]),
                clients=len(outcome),
                asked=max(one.selected, len(outcome)) if synchronous else len(outcome),
                failed=int(np.isin(outcome, (Outcome.FAILED, Outcome.DROPPED)).sum()),
                late=int((outcome == Outcome.LATE).sum()),
                bytes_up=_total(table.wire_bytes_up, rows),
                bytes_down=_total(table.wire_bytes_down, rows),
                raw_bytes_up=_total(table.raw_bytes_up, rows),
                raw_bytes_down=_total(table.raw_bytes_down, rows),
            )
        )
    return tuple(found)


def by_phase(phases: Floats) -> dict[str, float]:
    """Seconds a phase, of those that took any; `unexplained` always."""
    totals = phases.sum(axis=0).tolist()
    return {name: total for name, total in zip(ALL, totals, strict=True) if total > 0 or name == ALL[-1]}


def _total(column: Floats, rows: slice | Ints) -> float | None:
    known = column[rows][~np.isnan(column[rows])]
    return float(known.sum()) if len(known) else None
