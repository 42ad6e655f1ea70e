"""A small run in a real store, for the tests of what is shown. Its clients have names that would love to misbehave."""

from __future__ import annotations

import os
import platform
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from fedvitals.store import SQLiteStore
from fedvitals.vocabulary import (
    Evaluation,
    Failure,
    Layer,
    Layout,
    ModelBlock,
    Outcome,
    Participation,
    Record,
    Round,
    Run,
    Status,
    UpdateBlock,
)

HOSTILE = "[red]x\x1b[2J"
CLIENTS = ("2", "10", HOSTILE)
ROUNDS = 3
MS = 1_000_000
STARTED_UNIX_NS = 1_760_000_000 * 10**9
LAYOUT = Layout(1, (Layer("net.weight", (2, 3), "float32", 6, True), Layer("net.bias", (2,), "float32", 2, True)))


def participation(client: str, round: int = 0, **changes: Any) -> Participation:
    """A client's work that went well, unless told otherwise."""
    return Participation(
        client=client,
        attempt=round,
        round=round,
        base_version=round,
        applied_version=round + 1,
        staleness=0,
        outcome=Outcome.USED,
        samples=40,
        steps=6,
        epochs=3,
        start_ns=round * 100 * MS,
        end_ns=round * 100 * MS + 50 * MS,
        loss=0.8,
        first_loss=1.25,
        update_norm=0.5,
        cosine=0.75,
        nonfinite=0,
        train_s=0.04,
        wire_bytes_up=1500,
    )._replace(**changes)


def records() -> list[Record]:
    """Three rounds of three clients; one of them fails in the last."""
    made: list[Record] = [LAYOUT]
    for number in range(ROUNDS):
        begin, end = number * 100 * MS, (number * 100 + 80) * MS
        failed = number == ROUNDS - 1
        made.append(Round(number, number, begin, end, selected=3, used=2 if failed else 3, failed=int(failed)))
        made.append(Evaluation(number, end, loss=1.0 / (number + 1), accuracy=0.5 + number / 10))
        made.append(_update_block(number))
        made += [_of_round(client, row, number) for row, client in enumerate(CLIENTS)]
    made.append(Failure(250 * MS, "train", "ValueError", "bad\x1b[31m row\nsecond line", ROUNDS - 1, HOSTILE, 2))
    made.append(_model_block())
    return made


def _of_round(client: str, row: int, number: int) -> Participation:
    if client == HOSTILE and number == ROUNDS - 1:
        return participation(client, number, outcome=Outcome.FAILED, loss=None, update_norm=None, cosine=None)
    return participation(client, number, block=number + 1, block_row=row, cosine=0.75 - row)


def _update_block(number: int) -> UpdateBlock:
    stats = np.arange(len(CLIENTS) * 2 * 6, dtype=np.float32).reshape(len(CLIENTS), 2, 6)
    return UpdateBlock(number + 1, number, LAYOUT.id, stats)


def _model_block() -> ModelBlock:
    stats = np.linspace(0.0, 1.1, 12, dtype=np.float32).reshape(2, 6)
    return ModelBlock(ROUNDS, ROUNDS, LAYOUT.id, stats, np.array([0, 1], np.uint32), 1.0, 0.5, "f" * 16)


def write_run(folder: Path, run_id: str = "digits-1", status: Status = Status.FINISHED, age: int = 0) -> None:
    """One run in the store of this folder; `age` in seconds before the others."""
    ours = {"host": platform.node(), "pid": os.getpid(), "process_started": 0.0}  # another process had our number
    run = Run(run_id, "digits", status, STARTED_UNIX_NS - age * 10**9, ended_ns=300 * MS, environment=ours)
    with closing(SQLiteStore(folder).create(run)) as journal:
        journal.append(records())
