"""Records to rows of words: what the command line prints, as pure functions.

Nothing here reads a store or knows of terminals. Every cell that a stranger could have written goes through `safe`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fedvitals.show.overview import Overview, last_judged
from fedvitals.show.words import fixed, instant, natural, number, plural, safe, seconds, size, whole
from fedvitals.vocabulary import Evaluation, Failure, Outcome, Participation, Round, TensorStats


class Table(NamedTuple):
    """Words in rows. `texts` names the columns that are words rather than numbers: they are set to the left. `spare`
    names those that go first where there is not room for all."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: frozenset[str] = frozenset()
    spare: tuple[str, ...] = ()


def runs_table(overviews: Iterable[Overview]) -> Table:
    rows = [
        (
            safe(one.run.id),
            safe(one.run.name, 40),
            one.run.status.value,
            whole(one.rounds),
            whole(one.clients),
            fixed(one.loss),
            fixed(one.accuracy),
            whole(one.failures),
            instant(one.run.started_unix_ns),
            seconds(one.wall_s),
            size(one.size_bytes),
        )
        for one in overviews
    ]
    columns = (
        "run",
        "name",
        "status",
        "rounds",
        "clients",
        "loss",
        "accuracy",
        "failures",
        "started",
        "took",
        "size",
    )
    texts = frozenset({"run", "name", "status", "started"})
    return Table("", columns, tuple(rows), texts, spare=("size", "failures", "took", "clients", "name"))


def header_lines(one: Overview, participations: int | None = None) -> list[tuple[str, str]]:
    """What stands above a run's tables: a word and what it is. The first line says which run it is."""
    run = one.run
    took_part = f", {plural(participations, 'participation')}" if participations is not None else ""
    lines = [
        ("run", f"{safe(run.name)}   {safe(run.id)}"),
        ("status", f"{run.status.value}, {plural(one.rounds, 'round')} in {seconds(one.wall_s)}"),
        ("started", instant(run.started_unix_ns)),
        ("clients", f"{plural(one.clients, 'client')}{took_part}"),
        ("result", f"loss {fixed(one.loss)}, accuracy {fixed(one.accuracy)}"),
        ("recorded", f"{size(one.size_bytes)} at level {run.level.value}"),
    ]
    if error := run.health.get("error"):
        lines.insert(2, ("ended by", safe(error, 200)))
    return [*lines, ("failures", whole(one.failures))] if one.failures else lines


def rounds_table(rounds: Sequence[Round], evaluations: Sequence[Evaluation]) -> Table:
    judged = last_judged(evaluations)
    rows = []
    for one in rounds:
        evaluation = judged.get(one.number)
        rows.append(
            (
                whole(one.number),
                fixed(evaluation.loss if evaluation else None),
                fixed(evaluation.accuracy if evaluation else None),
                whole(one.selected),
                whole(one.used),
                whole(one.failed),
                seconds(None if one.end_ns is None else (one.end_ns - one.start_ns) / 1e9),
                safe(one.error or "", 60),
            )
        )
    columns = ("round", "loss", "accuracy", "asked", "used", "failed", "took", "error")
    return _without_empty(Table("rounds", columns, tuple(rows), frozenset({"error"})), "error")


def clients_table(participations: Iterable[Participation]) -> Table:
    """A row a client: its middle over the rounds it took part in."""
    rows = []
    for client, own in sorted(by_client(participations).items(), key=lambda item: natural(item[0])):
        rows.append(
            (
                safe(client, 40),
                whole(len(own)),
                whole(sum(one.outcome == Outcome.USED for one in own)),
                whole(sum(one.outcome == Outcome.FAILED for one in own)),
                whole(own[-1].samples),
                fixed(middle(one.first_loss for one in own)),
                fixed(middle(one.update_norm for one in own)),
                fixed(middle(one.cosine for one in own), 2),
                whole(sum(one.nonfinite or 0 for one in own)),
                seconds(middle(one.train_s for one in own)),
                size(_total(one.wire_bytes_up for one in own)),
            )
        )
    columns = (
        "client",
        "rounds",
        "used",
        "failed",
        "samples",
        "first loss",
        "norm",
        "cosine",
        "non-finite",
        "train",
        "sent",
    )
    title = "clients (middle of their rounds)"
    return Table(title, columns, tuple(rows), frozenset({"client"}), spare=("sent", "samples", "used"))


def participations_table(participations: Sequence[Participation], *, of_client: bool) -> Table:
    """One round's clients, or one client's rounds: a row a participation."""
    rows = [
        (
            whole(one.round) if of_client else safe(one.client, 40),
            safe(one.outcome, 20),
            whole(one.staleness or None),  # only training without rounds has any
            whole(one.samples),
            whole(one.steps),
            fixed(one.first_loss),
            fixed(one.loss),
            fixed(one.update_norm),
            fixed(one.cosine, 2),
            whole(one.nonfinite),
            whole(one.bad_step),
            seconds(one.train_s),
            seconds(one.duration_s),
            size(one.wire_bytes_up),
        )
        for one in participations
    ]
    columns = (
        "round" if of_client else "client",
        "outcome",
        "stale",
        "samples",
        "steps",
        "first loss",
        "loss",
        "norm",
        "cosine",
        "non-finite",
        "bad step",
        "train",
        "whole",
        "sent",
    )
    texts = frozenset({"client", "outcome"})
    spare = ("sent", "whole", "steps", "samples")
    whole_table = Table("participations", columns, tuple(rows), texts, spare)
    return _without_empty(_without_empty(whole_table, "bad step"), "stale")


def layers_table(title: str, stats: Sequence[TensorStats]) -> Table:
    rows = [
        (
            safe(one.layer, 60),
            whole(one.size),
            number(one.norm),
            number(one.mean),
            number(one.std),
            number(one.min),
            number(one.max),
            fixed(one.zero_ratio, 2),
            whole(one.nonfinite),
        )
        for one in stats
    ]
    columns = ("layer", "values", "norm", "mean", "std", "min", "max", "zeros", "non-finite")
    return Table(title, columns, tuple(rows), frozenset({"layer"}))


def failures_table(failures: Sequence[Failure]) -> Table:
    rows = [
        (
            whole(one.round),
            safe(one.client if one.client is not None else "-", 40),
            safe(one.stage, 20),
            safe(one.kind, 40),
            safe(one.message.strip().splitlines()[0] if one.message.strip() else "", 100),
        )
        for one in failures
    ]
    columns = ("round", "client", "stage", "kind", "message")
    return Table("failures", columns, tuple(rows), frozenset({"client", "stage", "kind", "message"}))


def middle(values: Iterable[float | None]) -> float | None:
    """The median of what is there, NaN counting as the largest; None when nothing is there."""
    there = sorted((value for value in values if value is not None), key=lambda value: (math.isnan(value), value))
    half = len(there) // 2
    if not there:
        return None
    return there[half] if len(there) % 2 else (there[half - 1] + there[half]) / 2


def _total(values: Iterable[int | None]) -> int | None:
    """The sum of what is there; None, not 0, when nobody counted."""
    there = [value for value in values if value is not None]
    return sum(there) if there else None


def by_client(participations: Iterable[Participation]) -> dict[str, list[Participation]]:
    grouped: dict[str, list[Participation]] = defaultdict(list)
    for one in participations:
        grouped[one.client].append(one)
    return grouped


def fitted(table: Table, width: int, gap: int = 2) -> Table:
    """The table without as many of its spare columns as it takes to fit."""
    for column in table.spare:
        widths = [max(map(len, words)) for words in zip(table.columns, *table.rows, strict=True)]
        if sum(widths) + gap * (len(widths) - 1) <= width:
            break
        table = _without(table, column)
    return table


def _without_empty(table: Table, column: str) -> Table:
    """The table without a column in which nothing stands: most runs have no error to show."""
    place = table.columns.index(column)
    return table if any(row[place] not in ("", "-") for row in table.rows) else _without(table, column)


def _without(table: Table, column: str) -> Table:
    place = table.columns.index(column)
    return table._replace(
        columns=tuple(word for index, word in enumerate(table.columns) if index != place),
        rows=tuple(tuple(word for index, word in enumerate(row) if index != place) for row in table.rows),
    )
