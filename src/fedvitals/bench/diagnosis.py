"""How long a diagnosis takes: 1,000 clients, 200 rounds, 20 layers, in a store on disk, looked at by every rule.

The records are made up (noise of the right shapes), so what is found in them means nothing; reading them and looking at
them costs what it costs.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedvitals.bench import made_up
from fedvitals.bench.table import Row, spread
from fedvitals.diagnose.charting import read_chart
from fedvitals.diagnose.diagnosis import examine
from fedvitals.diagnose.registry import RULES
from fedvitals.store import SQLiteStore
from fedvitals.vocabulary import Evaluation, Record, Round, Run, Status

RUN = Run("bench", "bench", Status.FINISHED, 1, ended_ns=200 * 65_000_000)
GOAL_S = 10.0


def run(quick: bool = False) -> list[Row]:
    """Seconds to read a run and to let every rule look at it."""
    clients, rounds, repeats = (50, 20, 1) if quick else (1000, 200, 3)
    case = f"{clients:,} clients x {rounds} rounds x {made_up.LAYERS} layers"
    with made_up_run(clients, rounds) as store:
        goes = [_diagnosed(store) for _ in range(repeats)]
    reading, looking = zip(*goes, strict=True)
    return [
        Row(case, "reading", *spread(list(reading)), "s"),
        Row(case, "looking", *spread(list(looking)), "s"),
        Row(case, "diagnosis", *spread([sum(go) for go in goes]), "s", None if quick else GOAL_S, at_least=False),
    ]


@contextmanager
def made_up_run(clients: int, rounds: int) -> Iterator[SQLiteStore]:
    """A store with one such run, for as long as it is looked at."""
    with tempfile.TemporaryDirectory() as folder:
        store = SQLiteStore(Path(folder))
        with closing(store.create(RUN)) as journal:
            for batch in _records(clients, rounds):
                journal.append(batch)
        yield store


def _diagnosed(store: SQLiteStore) -> tuple[float, float]:
    with closing(store.open("last")) as reader:
        began = time.perf_counter()
        chart = read_chart(reader)
        read = time.perf_counter()
        examine(chart, RULES)
        return read - began, time.perf_counter() - read


def _records(clients: int, rounds: int) -> Iterator[list[Record]]:
    yield [made_up.layout(10)]
    every = list(made_up.participations(clients * rounds, clients, cohort=clients))
    for number, first in enumerate(range(0, len(every), made_up.BLOCK), start=1):
        some = every[first : first + made_up.BLOCK]
        block = made_up.update_block(number, 10, 8, len(some), seed=number)
        yield [*some, replace(block, stats=np.abs(block.stats))]  # norms are never negative
    for number in range(rounds):
        start = number * 65_000_000
        yield [
            Round(number, number, start, start + 65_000_000, clients, clients, 0),
            Evaluation(number, start + 64_000_000, loss=2.0 / (1 + number), accuracy=1 - 1 / (2 + number)),
        ]
