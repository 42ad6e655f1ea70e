"""Records to documents for programs: what `--json` prints, as pure functions. Names are the vocabulary's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

from fedvitals.show.overview import Overview, last_judged
from fedvitals.vocabulary import Evaluation, Failure, Participation, Round, Run, TensorStats


def run_document(run: Run) -> dict[str, Any]:
    """Who a run is: what every document about one run begins with."""
    return {
        "id": run.id,
        "name": run.name,
        "status": run.status.value,
        "level": run.level.value,
        "started": _started(run.started_unix_ns),
    }


def overview_document(one: Overview) -> dict[str, Any]:
    numbers = {field.name: getattr(one, field.name) for field in fields(one) if field.name != "run"}
    return {**run_document(one.run), **numbers}


def round_document(one: Round, evaluation: Evaluation | None) -> dict[str, Any]:
    return {
        **one._asdict(),
        "loss": evaluation.loss if evaluation else None,
        "accuracy": evaluation.accuracy if evaluation else None,
        "took_s": None if one.end_ns is None else (one.end_ns - one.start_ns) / 1e9,
    }


def rounds_documents(rounds: Sequence[Round], evaluations: Sequence[Evaluation]) -> list[dict[str, Any]]:
    judged = last_judged(evaluations)
    return [round_document(one, judged.get(one.number)) for one in rounds]


def records_documents(
    records: Iterable[Participation] | Iterable[Failure] | Iterable[TensorStats],
) -> list[dict[str, Any]]:
    """Records as they stand, field by field."""
    return [one._asdict() for one in records]


def _started(unix_ns: int) -> str | None:
    try:
        return datetime.fromtimestamp(unix_ns / 1e9, UTC).isoformat()
    except (OverflowError, OSError, ValueError):  # a run's file may say anything
        return None
