"""Made-up federations for the what-if tests: rounds of clients whose durations are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from scripted import a_round, profiled, span, work

from fedvitals.profile.profile import Profile
from fedvitals.profile.whatif.model import Model
from fedvitals.vocabulary import Record

BEFORE_S, AGGREGATE_S = 0.5, 1.0
JOB: dict[str, Any] = {one: {} for one in ("data", "model", "train", "server", "codec", "execute")}


def side_by_side(rounds: Sequence[Mapping[str, float]], evaluate_s: Sequence[float] = ()) -> tuple[list[Record], float]:
    """Clients that begin together; then the server aggregates, and evaluates where that is said. Gives the end, too."""
    records: list[Record] = []
    attempts: dict[str, int] = {}
    now = 0.0
    for number, durations in enumerate(rounds):
        begin = now + BEFORE_S
        for client, seconds in durations.items():
            attempts[client] = attempts.get(client, -1) + 1
            told = {"train": seconds}
            records.append(work(client, begin, begin + seconds, told, round=number, attempt=attempts[client]))
        closed = begin + max(durations.values(), default=0.0)
        judged = evaluate_s[number] if number < len(evaluate_s) else 0.0
        end = closed + AGGREGATE_S + judged
        records.append(span(10 * number + 1, "aggregate", closed, closed + AGGREGATE_S, round=number))
        if judged:
            records.append(span(10 * number + 2, "evaluate", closed + AGGREGATE_S, end, round=number))
        records.append(a_round(number, now, end))
        now = end
    return records, now


def one_by_one(rounds: Sequence[Mapping[str, float]], gap_s: float = 0.0) -> tuple[list[Record], float]:
    """Clients that follow each other, `gap_s` apart."""
    records: list[Record] = []
    now = 0.0
    for number, durations in enumerate(rounds):
        start = now
        for place, (client, seconds) in enumerate(durations.items()):
            now += gap_s if place else 0.0
            records.append(work(client, now, now + seconds, {"train": seconds}, round=number, attempt=number))
            now += seconds
        records.append(span(10 * number + 1, "aggregate", now, now + AGGREGATE_S, round=number))
        now += AGGREGATE_S
        records.append(a_round(number, start, now))
    return records, now


def known(profile: Profile, config: Mapping[str, Any] | None = None, **environment: Any) -> Profile:
    """The profile of the same run, with more in its record."""
    run = replace(
        profile.run,
        config={**profile.run.config, **(config or {})},
        environment={**profile.run.environment, **environment},
    )
    return replace(profile, run=run)


def model_of(
    folder: Path, made: tuple[list[Record], float], config: Mapping[str, Any] | None = None, **told: Any
) -> Model:
    records, end = made
    profile = profiled(folder, records, end=end, clock=told.pop("clock", "real"))
    return Model.of(known(profile, config, **told))
