"""Runs whose every instant is known: records written by hand into a real store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fedvitals.profile.profile import Profile, profile_of
from fedvitals.store import SQLiteStore
from fedvitals.vocabulary import Outcome, Participation, Record, Round, Run, Span, Status

SECOND = 1_000_000_000


def ns(seconds: float) -> int:
    return round(seconds * SECOND)


def work(
    client: str,
    start: float,
    end: float,
    phases: Mapping[str, float] = MappingProxyType({}),
    *,
    round: int = 0,
    attempt: int = 0,
    outcome: str = Outcome.USED,
) -> Participation:
    """A client at work from one second to another; {"train": 1.5} tells of a phase."""
    told: dict[str, Any] = {f"{phase}_s": seconds for phase, seconds in phases.items()}
    found = Participation(
        client=client,
        attempt=attempt,
        round=round,
        base_version=round,
        applied_version=None,
        staleness=None,
        outcome=outcome,
        samples=100,
        steps=10,
        epochs=1,
        start_ns=ns(start),
        end_ns=ns(end),
    )
    return found._replace(**told)


def span(
    number: int,
    name: str,
    start: float,
    end: float | None,
    *,
    client: str | None = None,
    attempt: int | None = None,
    round: int | None = 0,
) -> Span:
    return Span(number, None, name, ns(start), None if end is None else ns(end), round, client, attempt)


def a_round(number: int, start: float, end: float | None) -> Round:
    return Round(number, number, ns(start), None if end is None else ns(end))


def profiled(folder: Path, records: Sequence[Record], *, end: float | None, clock: str = "real") -> Profile:
    """What the profile makes of these records; a run without an end was cut off."""
    status = Status.RUNNING if end is None else Status.FINISHED
    run = Run(
        "scripted", "scripted", status, 0, ended_ns=None if end is None else ns(end), environment={"clock": clock}
    )
    with closing(SQLiteStore(folder).create(run)) as journal:
        journal.append([run, *records])
    with closing(SQLiteStore(folder).open("scripted")) as reader:
        return profile_of(reader)
