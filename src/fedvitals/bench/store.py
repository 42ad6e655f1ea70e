"""How fast and how small the store is, how fast it reads, and what a killed process loses.

Writing is measured from records in memory (numpy arrays, named tuples) through the writer's queue to the closed file,
checkpoint and fsync included; making the records is not. The machine's disk is part of the figure.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from fedvitals.bench import made_up
from fedvitals.bench.kill import kill_after
from fedvitals.bench.table import Row, spread
from fedvitals.store import BackgroundWriter, SQLiteStore
from fedvitals.vocabulary import Record, Run, Status

RUN = Run("bench", "bench", Status.RUNNING, 1)
USUAL = (10, 8)  # units of the last layer, losses kept
WIDEST = (64, 32)
RATE_GOAL, SIZE_GOAL, HISTORY_GOAL_MS, LOST_GOAL_S, GROWTH_GOAL_MB = 50_000, 2048, 50, 0.5, 16


def run(quick: bool = False) -> list[Row]:
    """All measures; `quick` takes smaller amounts and says nothing about speed."""
    count, repeats = (32_000, 3) if quick else (64_000, 15)
    return [
        *_writing("20 layers, 10 units, 8 losses", *USUAL, count, repeats),
        *_writing("20 layers, 64 units, 32 losses", *WIDEST, count, repeats),
        *_reading(50_000 if quick else 1_000_000),
        _memory(20_000 if quick else 200_000),
        *_killing(5 if quick else 50),
    ]


@dataclass(frozen=True, slots=True)
class Written:
    """One go of writing."""

    rate: float
    cpu_us: float
    put_us: float
    size_bytes: float


def _writing(case: str, units: int, kept_steps: int, count: int, repeats: int) -> list[Row]:
    batches = made_up.batches(count, 1000, units, kept_steps)
    goes = [_write(batches, units, count) for _ in range(repeats)]
    usual = (units, kept_steps) == USUAL
    rates = spread([go.rate for go in goes])
    return [
        Row(case, "participations written", *rates, "1/s", RATE_GOAL if usual else None),
        Row(case, "writer CPU a participation", *spread([go.cpu_us for go in goes]), "us"),
        Row(case, "put a participation, in the caller", *spread([go.put_us for go in goes]), "us"),
        Row(case, "on disk", *spread([go.size_bytes for go in goes]), "B each", SIZE_GOAL, at_least=False),
    ]


def _write(batches: list[tuple[list[Record], int]], units: int, count: int) -> Written:
    with _store() as store:
        journal = store.create(RUN)
        journal.append([made_up.layout(units)])
        writer = BackgroundWriter(journal, queue_bytes=64 << 20, on_trouble=_stop)
        began, putting = time.perf_counter(), 0.0
        for records, size in batches:
            putting += _put(writer, records, size)
        if not writer.close(600):
            raise TimeoutError("the disk took more than 600 s")
        took = time.perf_counter() - began
        return Written(
            count / took, 1e6 * writer.cpu_s / count, 1e6 * putting / count, store.size_bytes(RUN.id) / count
        )


def _put(writer: BackgroundWriter, records: list[Record], size: int) -> float:
    """Put them in, waiting where a training would not: nothing may be dropped here. Gives the seconds of the put."""
    while writer.memory_bytes > 48 << 20:
        time.sleep(0.001)
    began = time.perf_counter()
    if not writer.put(records, size):
        raise MemoryError("the queue is full")
    return time.perf_counter() - began


def _reading(count: int) -> list[Row]:
    """One client's history and one round, each time through a new reader."""
    clients = 1000
    with _store() as store:
        with closing(store.create(RUN)) as journal:
            batch: list[Record] = []
            for record in made_up.participations(count, clients):
                batch.append(record)
                if len(batch) == 300:  # what 0.2 s bring
                    journal.append(batch)
                    batch = []
            journal.append([*batch])
        case = f"{count:,} participations of {clients:,} clients"
        history = [_timed(store, client=f"client-{number:06d}") for number in range(0, clients, clients // 20)]
        rounds = [_timed(store, round=number) for number in range(0, count // made_up.COHORT, max(1, count // 2000))]
    return [
        Row(case, "one client's history", *spread(history), "ms", HISTORY_GOAL_MS, at_least=False),
        Row(case, "one round", *spread(rounds), "ms", HISTORY_GOAL_MS, at_least=False),
    ]


def _timed(store: SQLiteStore, *, client: str | None = None, round: int | None = None) -> float:
    with closing(store.open(RUN.id)) as reader:
        began = time.perf_counter()
        found = reader.participations(client=client, round=round)
        took = 1e3 * (time.perf_counter() - began)
    if not found:
        raise LookupError(f"nothing was found for {client or round!r}")
    return took


def _memory(count: int) -> Row:
    """Growth of the process between the first and the last tenth of the writing, clients being all known."""
    import psutil

    process = psutil.Process()
    batches = made_up.batches(count // 10, 1000, *USUAL)
    with _store() as store:
        journal = store.create(RUN)
        journal.append([made_up.layout(USUAL[0])])
        writer = BackgroundWriter(journal, queue_bytes=64 << 20, on_trouble=_stop)
        sizes = []
        for _ in range(10):
            for records, size in batches:
                _put(writer, records, size)
            writer.flush(600)
            sizes.append(process.memory_info().rss / 1e6)
        writer.close(600)
    growth = sizes[-1] - sizes[0]
    return Row(
        f"{count:,} participations",
        "memory growth while writing",
        growth,
        growth,
        growth,
        "MB",
        GROWTH_GOAL_MB,
        at_least=False,
    )


def _killing(moments: int) -> list[Row]:
    """Kill a recording process at random moments and look at what it left."""
    moment = random.Random(7)  # noqa: S311  # moments, not secrets
    killed = [kill_after(moment.uniform(0.0, 1.5)) for _ in range(moments)]
    opened = sum(one.whole and one.status is Status.CUT_OFF for one in killed) / moments
    missing = [one.missing_s for one in killed]
    case = f"kill -9 at {moments} moments"
    return [
        Row(case, "opened, whole, said to be cut off", opened, opened, opened, "share", 1.0),
        Row(case, "longest stretch lost", max(missing), min(missing), max(missing), "s", LOST_GOAL_S, at_least=False),
    ]


def _stop(message: str) -> None:
    raise OSError(message)


@contextmanager
def _store() -> Iterator[SQLiteStore]:
    """A store on the disk that temporary files are on."""
    folder = tempfile.mkdtemp(prefix="fedvitals-bench-")
    try:
        yield SQLiteStore(Path(folder))
    finally:
        shutil.rmtree(folder)
        os.sync()  # so that one case does not pay for what another wrote
