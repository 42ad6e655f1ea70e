"""Clients on all cores: worker processes that each hold the data and a model, and share memory with the engine.

Workers are forked, so they start with everything in place and nothing is sent but plans and results; updates are
written into memory that both sides see. A worker that dies costs its clients this round, and is replaced.
"""

from __future__ import annotations

import mmap
import multiprocessing
import time
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, wait

import numpy as np
import torch
from torch import Tensor

from fedvitals.errors import TrainingError
from fedvitals.faults.work import LocalWork
from fedvitals.train import workers as processes
from fedvitals.train.trained import Failed, Trained
from fedvitals.train.workers import Attempt, Shared, Worker


class PoolExecutor:
    """Hands out tasks of `chunk` clients to `workers` processes, each as soon as one is free."""

    def __init__(self, name: str, attempt: Attempt, *, workers: int, chunk: int, size: int, most: int) -> None:
        if "fork" not in multiprocessing.get_all_start_methods():
            raise TrainingError(f"executor {name!r} with several workers needs fork(), which this system has not")
        self.name = name
        self._attempt = attempt
        self._chunk = chunk
        self._shared = Shared(_memory(1, size)[0], _memory(most, size))
        self._workers: list[Worker] = []
        for _ in range(max(1, min(workers, -(-most // chunk)))):
            self._start()

    def run(
        self, works: Sequence[LocalWork], weights: Tensor, integers: Mapping[str, Tensor]
    ) -> Iterator[Trained | Failed]:
        self._shared.weights.copy_(weights)
        self._replace_dead()
        tasks = [(start, works[start : start + self._chunk]) for start in range(0, len(works), self._chunk)]
        tasks.reverse()
        busy: dict[Connection, tuple[Worker, Sequence[LocalWork], int]] = {}
        idle = list(self._workers)
        finished: list[Trained | Failed] = []
        while tasks or busy:
            while tasks and idle:
                worker, (row, some) = idle.pop(), tasks.pop()
                busy[worker.connection] = (worker, some, time.perf_counter_ns())
                worker.send((row, some, dict(integers)))
            yield from finished  # the engine has its work to do with them: the workers have theirs by now
            finished = []
            for ready in wait(list(busy)):
                assert isinstance(ready, Connection)
                worker, some, sent_ns = busy.pop(ready)
                results, worker = self._collect(worker, some)
                _add_the_way([one for one in results if isinstance(one, Trained)], sent_ns)
                idle.append(worker)
                finished += results
        yield from finished

    def close(self) -> None:
        processes.stop(self._workers)
        self._workers = []

    def _collect(self, worker: Worker, some: Sequence[LocalWork]) -> tuple[list[Trained | Failed], Worker]:
        try:
            received = worker.receive()
        except (EOFError, OSError):
            return self._buried(worker, some)
        return [self._with_rows(result) for result in received], worker

    def _with_rows(self, result: Trained | Failed) -> Trained | Failed:
        """Updates come through shared memory; copied, because the next task may write there."""
        if isinstance(result, Trained):
            result.updates = self._shared.updates[result.updates]
        return result

    def _buried(self, worker: Worker, some: Sequence[LocalWork]) -> tuple[list[Trained | Failed], Worker]:
        worker.process.join(timeout=5)
        message = f"the worker process ended with code {worker.process.exitcode} while it trained this client"
        now = time.perf_counter_ns()
        fresh = self._replaced(worker)
        return [Failed(work, "train", "worker died", message, None, now, now) for work in some], fresh

    def _replace_dead(self) -> None:
        """A worker that died between rounds costs nobody anything."""
        for worker in [worker for worker in self._workers if not worker.process.is_alive()]:
            self._replaced(worker)

    def _replaced(self, worker: Worker) -> Worker:
        self._workers.remove(worker)
        processes.stop([worker])
        return self._start()

    def _start(self) -> Worker:
        worker = processes.start(self._attempt, self._shared, self._workers)
        self._workers.append(worker)
        return worker


def _add_the_way(task: Sequence[Trained], sent_ns: int) -> None:
    """A task's first clients began when it was sent, its last ended when it is here: between they wait."""
    now_ns = time.perf_counter_ns()
    for place, one in enumerate(task):
        there = min(one.start_ns) - sent_ns if place == 0 else 0
        back = now_ns - max(one.end_ns) if place == len(task) - 1 else 0
        count = len(one.works)  # of a batch each has its share, as of its other times
        one.phases_s["wait"] = np.full(count, (there + back) / count / 1e9)
        one.start_ns = [start - there for start in one.start_ns]
        one.end_ns = [end + back for end in one.end_ns]


def _memory(rows: int, size: int) -> Tensor:
    """Memory that forked children see too; anonymous, so that a small /dev/shm is no limit."""
    memory = mmap.mmap(-1, max(4 * rows * size, 4))
    return torch.frombuffer(memory, dtype=torch.float32, count=rows * size).view(rows, size)
