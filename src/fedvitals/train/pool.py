"""Clients on all cores: worker processes that each hold the data and a model, and share memory with the engine.

Workers are forked, so they start with everything in place and nothing is sent but plans and results; updates are
written into memory that both sides see. A worker that dies costs its clients this round, and is replaced.
"""

from __future__ import annotations

import contextlib
import mmap
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkContext, ForkProcess

import torch
from torch import Tensor

from fedvitals.errors import TrainingError
from fedvitals.faults.work import LocalWork
from fedvitals.train.trained import Failed, Trained

# What a worker does with a task: some clients, the weights they start from, the number of the task.
Attempt = Callable[[Sequence[LocalWork], Tensor, Mapping[str, Tensor], int], Iterator[Trained | Failed]]


class PoolExecutor:
    """Hands out tasks of `chunk` clients to `workers` processes, each as soon as one is free."""

    def __init__(self, name: str, attempt: Attempt, *, workers: int, chunk: int, size: int, most: int) -> None:
        if "fork" not in multiprocessing.get_all_start_methods():
            raise TrainingError(f"executor {name!r} with several workers needs fork(), which this system has not")
        self.name = name
        self._context: ForkContext = multiprocessing.get_context("fork")
        self._attempt = attempt
        self._chunk = chunk
        self._weights = _shared(1, size)[0]
        self._updates = _shared(most, size)
        self._workers = [self._start() for _ in range(max(1, min(workers, -(-most // chunk))))]

    def run(
        self, works: Sequence[LocalWork], weights: Tensor, integers: Mapping[str, Tensor]
    ) -> Iterator[Trained | Failed]:
        self._weights.copy_(weights)
        tasks = [(start, works[start : start + self._chunk]) for start in range(0, len(works), self._chunk)]
        tasks.reverse()
        busy: dict[Connection, tuple[_Worker, Sequence[LocalWork]]] = {}
        idle = list(self._workers)
        while tasks or busy:
            while tasks and idle:
                worker, (row, some) = idle.pop(), tasks.pop()
                busy[worker.connection] = (worker, some)
                worker.send((row, some, dict(integers)))
            for ready in wait(list(busy)):
                assert isinstance(ready, Connection)
                worker, some = busy.pop(ready)
                results, worker = self._collect(worker, some)
                idle.append(worker)
                yield from results

    def close(self) -> None:
        for worker in self._workers:
            worker.stop()
        self._workers = []

    def _collect(self, worker: _Worker, some: Sequence[LocalWork]) -> tuple[list[Trained | Failed], _Worker]:
        try:
            received: list[Trained | Failed] = worker.connection.recv()
        except (EOFError, OSError):
            return self._buried(worker, some)
        return [self._with_rows(result) for result in received], worker

    def _with_rows(self, result: Trained | Failed) -> Trained | Failed:
        """Updates come through shared memory; copied, because the next task may write there."""
        if isinstance(result, Trained):
            rows = torch.tensor([int(row) for row in result.updates])
            result.updates = self._updates[rows]
        return result

    def _buried(self, worker: _Worker, some: Sequence[LocalWork]) -> tuple[list[Trained | Failed], _Worker]:
        worker.process.join(timeout=5)
        message = f"the worker process ended with code {worker.process.exitcode} while it trained this client"
        now = time.perf_counter_ns()
        self._workers.remove(worker)
        worker.stop()
        fresh = self._start()
        self._workers.append(fresh)
        return [Failed(work, "train", "worker died", message, None, now, now) for work in some], fresh

    def _start(self) -> _Worker:
        ours, theirs = self._context.Pipe()
        others = [worker.connection for worker in getattr(self, "_workers", [])]
        process = self._context.Process(
            target=_serve,
            args=(theirs, [ours, *others], self._attempt, self._weights, self._updates),
            name="fedvitals-worker",
            daemon=True,
        )
        process.start()
        theirs.close()
        return _Worker(process, ours)


class _Worker:
    def __init__(self, process: ForkProcess, connection: Connection) -> None:
        self.process = process
        self.connection = connection

    def send(self, task: object) -> None:
        with contextlib.suppress(OSError):  # it died while idle: reading from it will say so
            self.connection.send(task)

    def stop(self) -> None:
        self.connection.close()
        self.process.join(timeout=2)
        if self.process.is_alive():
            self.process.kill()
            self.process.join(timeout=2)
        self.process.close()


def _shared(rows: int, size: int) -> Tensor:
    """Memory that forked children see too; anonymous, so that a small /dev/shm is no limit."""
    memory = mmap.mmap(-1, max(4 * rows * size, 4))
    return torch.frombuffer(memory, dtype=torch.float32, count=rows * size).view(rows, size)


def _serve(
    connection: Connection, not_ours: list[Connection], attempt: Attempt, weights: Tensor, updates: Tensor
) -> None:
    """The worker: until the engine closes its end, or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the engine's to handle
    for other in not_ours:
        other.close()  # held open here, it would hide the engine's death from a sibling
    torch.set_num_threads(1)
    while True:
        try:
            row, some, integers = connection.recv()
        except (EOFError, OSError):
            return
        connection.send(_served(attempt(some, weights.clone(), integers, row), updates, row))


def _served(results: Iterator[Trained | Failed], updates: Tensor, row: int) -> list[Trained | Failed]:
    sent: list[Trained | Failed] = []
    for result in results:
        if isinstance(result, Trained):
            count = len(result.works)
            updates[row : row + count] = result.updates
            result.updates = torch.arange(row, row + count)
            # The plans are known to the engine; rows that a fault put into them need not travel back.
            result.works = tuple(replace(work, x=None, y=None) for work in result.works)
            row += count
        sent.append(result)
    return sent
