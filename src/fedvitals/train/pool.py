"""Clients on all cores: worker processes that each hold the data and a model, and share memory with the engine.

Workers are forked, so they start with everything in place and nothing is sent but plans and results; updates are
written into memory that both sides see. A worker that dies costs its clients this round, and is replaced.

A round hands out its tasks with `run`, those that are expected to take longest first. Without rounds, single clients
are handed out with `hand_out`, each with a model of its own, and taken back with `take` as they are done.
"""

from __future__ import annotations

import math
import mmap
import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, wait

import numpy as np
import torch
from torch import Tensor

from fedvitals.errors import TrainingError
from fedvitals.faults.work import LocalWork
from fedvitals.train import workers as processes
from fedvitals.train.trained import Failed, Trained
from fedvitals.train.workers import Attempt, Limits, Shared, Task, Worker

OWN_LIMITS = Limits()
LATE = "late"  # the kind of a client that was stopped, because its round went on


class PoolExecutor:
    """Hands out tasks of `chunk` clients to `workers` processes, each as soon as one is free."""

    def __init__(
        self,
        name: str,
        attempt: Attempt,
        *,
        workers: int,
        chunk: int,
        size: int,
        most: int,
        expected: Callable[[LocalWork], float] | None = None,
        limits: Limits = OWN_LIMITS,
    ) -> None:
        if "fork" not in multiprocessing.get_all_start_methods():
            raise TrainingError(f"executor {name!r} with several workers needs fork(), which this system has not")
        self.name = name
        self._attempt = attempt
        self._chunk = chunk
        self._expected = expected
        self._limits = limits
        self.workers = max(1, min(workers, -(-most // chunk)))
        self._shared = Shared(_memory(self.workers, size), _memory(most, size))
        self._workers: list[Worker] = []
        self._handed: dict[Connection, tuple[Worker, LocalWork, int, int]] = {}  # with the row that is theirs
        began = time.perf_counter()
        for _ in range(self.workers):
            self._start()
        self.start_s = (time.perf_counter() - began) / self.workers  # of one of them

    def run(
        self, works: Sequence[LocalWork], weights: Tensor, integers: Mapping[str, Tensor]
    ) -> Iterator[Trained | Failed]:
        self._shared.weights[0].copy_(weights)
        self._replace_dead()
        tasks = self._tasks(works)
        busy: dict[Connection, tuple[Worker, Sequence[LocalWork], int]] = {}
        idle = list(self._workers)
        finished: list[Trained | Failed] = []
        while tasks or busy:
            while tasks and idle:
                worker, (row, some) = idle.pop(), tasks.pop()
                busy[worker.connection] = (worker, some, time.perf_counter_ns())
                worker.send(Task(row, some, dict(integers)))
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

    def _tasks(self, works: Sequence[LocalWork]) -> list[tuple[int, Sequence[LocalWork]]]:
        """The next one last. Single clients go by the time they are expected to take, so that no worker begins a long
        one when the others are done (Graham, "Bounds on Multiprocessing Timing Anomalies", 1969). Who is in a batch
        with whom is in the bits of the result, and stays as it is."""
        tasks = [(start, works[start : start + self._chunk]) for start in range(0, len(works), self._chunk)]
        tasks.reverse()
        if self._expected is not None and self._chunk == 1:
            tasks.sort(key=lambda task: self._expected(task[1][0]))  # type: ignore[misc]  # mypy forgets it in a lambda
        return tasks

    def hand_out(self, work: LocalWork, weights: Tensor, integers: Mapping[str, Tensor]) -> None:
        """Let an idle worker train this client from this model; there must be one."""
        self._replace_dead()
        taken = {row for _, _, row, _ in self._handed.values()}
        row = next(row for row in range(self.workers) if row not in taken)
        worker = next(worker for worker in self._workers if worker.connection not in self._handed)
        self._shared.weights[row].copy_(weights)
        self._handed[worker.connection] = (worker, work, row, time.perf_counter_ns())
        worker.send(Task(row, [work], dict(integers), row))

    def run_until(
        self,
        works: Sequence[LocalWork],
        weights: Tensor,
        integers: Mapping[str, Tensor],
        wanted: int,
        deadline_s: float = 0.0,
    ) -> Iterator[Trained | Failed]:
        """A round that goes on with the first `wanted`, or at its deadline (0: none). All begin at once, each in a
        worker of its own, of which there must be enough. Who is not done then is stopped, and comes as a Failed of kind
        `late`; a worker that was stopped is replaced."""
        end_s = time.monotonic() + deadline_s if deadline_s else math.inf
        for work in works:
            self.hand_out(work, weights, integers)
        here = 0
        while self._handed and here < wanted and time.monotonic() < end_s:
            for one in self.take(None if end_s == math.inf else max(end_s - time.monotonic(), 0.0)):
                if isinstance(one, Trained):
                    here += 1
                    yield one if here <= wanted else _late(one.works[0], one.start_ns[0])
                else:
                    yield one
        for worker, work, _, sent_ns in list(self._handed.values()):
            del self._handed[worker.connection]
            worker.process.kill()
            self._replaced(worker)
            yield _late(work, sent_ns)

    def take(self, timeout_s: float | None = None) -> list[Trained | Failed]:
        """Who was handed out and is done; waits until somebody is, or for so long."""
        done: list[Trained | Failed] = []
        for ready in wait(list(self._handed), timeout_s):
            assert isinstance(ready, Connection)
            worker, work, _, sent_ns = self._handed.pop(ready)
            results, _ = self._collect(worker, [work])
            _add_the_way([one for one in results if isinstance(one, Trained)], sent_ns)
            done += results
        return done

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
            if worker.connection not in self._handed:  # it will be told of when it is waited for
                self._replaced(worker)

    def _replaced(self, worker: Worker) -> Worker:
        self._workers.remove(worker)
        processes.stop([worker])
        return self._start()

    def _start(self) -> Worker:
        worker = processes.start(self._attempt, self._shared, self._workers, self._limits)
        self._workers.append(worker)
        return worker


def _late(work: LocalWork, since_ns: int) -> Failed:
    now_ns = time.perf_counter_ns()
    message = f"not done after {(now_ns - since_ns) / 1e9:.3g} s, when the round went on"
    return Failed(work, "train", LATE, message, None, since_ns, now_ns)


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
