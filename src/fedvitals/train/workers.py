"""Worker processes of the pool: how one is forked, spoken to and ended.

Plans and results go through a pipe, weights and updates through memory that both sides see.
"""

from __future__ import annotations

import contextlib
import copyreg
import io
import multiprocessing
import pickle  # only between the engine and its own forks
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from typing import Any, NamedTuple

import psutil
import torch
from torch import Tensor

from fedvitals.faults.work import LocalWork
from fedvitals.train.trained import Failed, Trained

# What a worker does with a task: some clients, the weights they start from, the row of the first one's update.
Attempt = Callable[[Sequence[LocalWork], Tensor, Mapping[str, Tensor], int], Iterator[Trained | Failed]]
STOPPING_S = 2.0  # what busy workers get to end by themselves when the engine is done, all together


class Task(NamedTuple):
    """What a worker is to do."""

    row: int  # of the first client's update
    works: Sequence[LocalWork]
    integers: Mapping[str, Tensor]
    model: int = 0  # row of the weights that they start from


class Limits(NamedTuple):
    """What a worker may take."""

    threads: int = 1
    memory_mb: int = 0  # beyond what it begins with; 0: as much as there is


class Shared(NamedTuple):
    """Memory that the engine and its workers see."""

    weights: Tensor  # [workers, size]: what clients start from, a round's in the first row; workers only read it
    updates: Tensor  # [clients, size]: a task's rows are its own


class Worker:
    """The engine's end of one worker process."""

    def __init__(self, process: ForkProcess, connection: Connection) -> None:
        self.process = process
        self.connection = connection

    def send(self, task: object) -> None:
        with contextlib.suppress(OSError):  # it died while idle: reading from it will say so
            self.connection.send_bytes(_packed(task))

    def receive(self) -> list[Trained | Failed]:
        """EOFError or OSError when it died."""
        results: list[Trained | Failed] = pickle.loads(self.connection.recv_bytes())  # noqa: S301  # from our own fork
        return results


def start(attempt: Attempt, shared: Shared, others: Sequence[Worker], limits: Limits) -> Worker:
    """Fork a worker. `others` are those that live: their connections are no business of the new one."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    not_its_own = [ours, *(worker.connection for worker in others)]
    process = context.Process(
        target=_serve, args=(theirs, not_its_own, attempt, shared, limits), name="fedvitals-worker", daemon=True
    )
    with _no_interrupt():  # until the worker has said that it ignores them
        process.start()
    theirs.close()
    return Worker(process, ours)


def stop(workers: Sequence[Worker]) -> None:
    """End them: all are told before any is waited for, and those still busy after a while are killed."""
    for worker in workers:
        worker.connection.close()
    deadline = time.monotonic() + STOPPING_S
    for worker in workers:
        worker.process.join(timeout=max(0.0, deadline - time.monotonic()))
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
        worker.process.close()


@contextlib.contextmanager
def _no_interrupt() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(
    connection: Connection, not_ours: list[Connection], attempt: Attempt, shared: Shared, limits: Limits
) -> None:
    """The worker: until the engine closes its end, or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the engine's to handle
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    for other in not_ours:
        other.close()  # held open here, it would hide the engine's end from a sibling
    _bound_memory(limits.memory_mb)
    if limits.threads == 1:
        _answer(connection, attempt, shared, limits)
        return
    # A fork inherits the word of OpenMP threads that it does not have, and would wait for them for ever. They belong to
    # the thread that made them: another one gets threads of its own.
    apart = threading.Thread(target=_answer, args=(connection, attempt, shared, limits), name="fedvitals-worker")
    apart.start()
    apart.join()


def _answer(connection: Connection, attempt: Attempt, shared: Shared, limits: Limits) -> None:
    """Task after task, until there is nobody to answer."""
    torch.set_num_threads(limits.threads)
    while True:
        try:
            task: Task = pickle.loads(connection.recv_bytes())  # noqa: S301  # from the engine
            connection.send_bytes(_packed(_done(task, attempt, shared, limits)))
        except (EOFError, OSError):
            return  # the engine is gone, or has had enough


def _done(task: Task, attempt: Attempt, shared: Shared, limits: Limits) -> list[Trained | Failed]:
    """What comes of a task. Where memory is bounded, a worker without room for the model itself lives on as well."""
    began_ns = time.perf_counter_ns()
    try:
        received = shared.weights[task.model].clone()
        results = _written(attempt(task.works, received, task.integers, task.row), shared.updates, task.row)
    except (RuntimeError, MemoryError) as error:
        if not limits.memory_mb:
            raise
        said = type(error).__name__, str(error), None, began_ns, time.perf_counter_ns()
        results = [Failed(work, "train", *said) for work in task.works]
    return [_of_bound(one, limits) if isinstance(one, Failed) else one for one in results]


def _of_bound(failed: Failed, limits: Limits) -> Failed:
    """A client that the bound on memory has cost says so."""
    if not limits.memory_mb or not ("MemoryError" in failed.kind or "allocate memory" in failed.message):
        return failed
    bound = f"execute.worker_mb = {limits.memory_mb} is all that its worker may take beyond what it begins with"
    return replace(failed, message=f"{bound}: {failed.message}")


def _bound_memory(memory_mb: int) -> None:
    """Beyond the bound memory is refused to the client that asks for it, which fails; the worker lives on."""
    if memory_mb:
        import resource

        own = psutil.Process().memory_info().vms
        resource.setrlimit(resource.RLIMIT_AS, (own + memory_mb * 2**20, resource.RLIM_INFINITY))


def _written(results: Iterator[Trained | Failed], updates: Tensor, row: int) -> list[Trained | Failed]:
    """Put updates where both sides see them; what is sent says in which rows."""
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


def _packed(value: object) -> bytes:
    """Pickled, with tensors as arrays: torch's own way takes shared memory, file descriptors and a thread to hand them
    over, and fails when the sender is gone."""
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = copyreg.dispatch_table | {Tensor: _as_array}
    pickler.dump(value)
    return buffer.getvalue()


def _as_array(tensor: Tensor) -> tuple[Any, ...]:
    return torch.from_numpy, (tensor.numpy(),)
