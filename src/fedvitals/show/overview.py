"""A run at a glance: the few numbers that lists and headers show, read from its store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedvitals.errors import StoreError
from fedvitals.store.protocol import RunReader, Store
from fedvitals.vocabulary import Evaluation, Run


@dataclass(frozen=True, slots=True)
class Overview:
    """One run, in numbers. Loss and accuracy are the global model's, when it was last judged."""

    run: Run
    rounds: int
    clients: int
    failures: int
    loss: float | None
    accuracy: float | None
    wall_s: float | None
    size_bytes: int


def overview(reader: RunReader) -> Overview:
    run = reader.run()
    rounds = reader.rounds()
    judged = last_judged(reader.evaluations())
    latest = judged[max(judged)] if judged else None
    ends = [one.end_ns for one in rounds if one.end_ns is not None]
    ended_ns = run.ended_ns if run.ended_ns is not None else max(ends, default=None)
    return Overview(
        run=run,
        rounds=len(ends),
        clients=len(reader.clients()),
        failures=len(reader.failures()),
        loss=latest.loss if latest else None,
        accuracy=latest.accuracy if latest else None,
        wall_s=None if ended_ns is None else ended_ns / 1e9,
        size_bytes=reader.size_bytes(),
    )


def last_judged(evaluations: Sequence[Evaluation]) -> dict[int, Evaluation]:
    """The global model's last evaluation in each round."""
    return {one.round: one for one in evaluations if one.client is None and one.split == "test"}


def overviews(store: Store, limit: int | None = None) -> tuple[list[Overview], list[tuple[str, str]]]:
    """Every run at a glance, newest first; and those that could not be read: id and reason."""
    found: list[Overview] = []
    damaged = store.damaged()
    for run in store.runs()[:limit]:
        try:
            found.append(_closing(store.open(run.id)))
        except StoreError as error:  # damaged below its first page, or removed a moment ago
            damaged.append((run.id, str(error)))
    return found, damaged


def _closing(reader: RunReader) -> Overview:
    try:
        return overview(reader)
    finally:
        reader.close()
