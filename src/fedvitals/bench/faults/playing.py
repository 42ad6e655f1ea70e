"""Many cells, on a few processes of one thread each, until they are done or the time is up."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice

from fedvitals.bench.faults.cells import Cell
from fedvitals.bench.faults.judging import Line, judged

ALONE = "memory-leak"  # what a process has once used stays its peak: such a cell has a process of its own


def play(cells: Sequence[Cell], version: str, *, workers: int = 2, until: float | None = None) -> Iterator[Line | str]:
    """Lines as they come; a cell that broke gives a text that says how. No cell begins after `until`, on the clock of
    `time.monotonic`."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the processes to come
    left = iter(cells)
    with _pool(workers) as pool:
        running = {_begun(pool, cell, version): cell for cell in _in_time(islice(left, workers), until)}
        try:
            while running:
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield _line(future, running.pop(future))
                    running |= {_begun(pool, cell, version): cell for cell in _in_time(islice(left, 1), until)}
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _pool(workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))


def _begun(pool: ProcessPoolExecutor, cell: Cell, version: str) -> Future[Line]:
    work: Callable[[Cell, str], Line] = judged_alone if cell.fault == ALONE else judged
    return pool.submit(work, cell, version)


def judged_alone(cell: Cell, version: str) -> Line:
    """The same in a process that has done nothing else."""
    with _pool(1) as pool:
        return pool.submit(judged, cell, version).result()


def _in_time(cells: Iterator[Cell], until: float | None) -> Iterator[Cell]:
    for cell in cells:
        if until is None or time.monotonic() < until:
            yield cell


def _line(future: Future[Line], cell: Cell) -> Line | str:
    try:
        return future.result()
    except Exception as error:  # one broken cell must not end an afternoon's bench
        return f"{cell.key}: {type(error).__name__}: {error}"
