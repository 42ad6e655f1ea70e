"""Which executor trains a job: a fixed function of the job and its model, so that the same job takes the same way.

What `auto` picks, and the sizes of chunks, come from the measurements of `fedvitals bench engine`.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from torch import Tensor, nn

from fedvitals.errors import JobError
from fedvitals.faults.work import LocalWork
from fedvitals.train.batched import Unbatchable
from fedvitals.train.batched.cohort import HandBatched
from fedvitals.train.compiled import CompiledTrainer, Program, program_of
from fedvitals.train.compiled.library import library
from fedvitals.train.federation import Federation
from fedvitals.train.heap import give_back_freed_memory
from fedvitals.train.job import Job
from fedvitals.train.local import LocalTrainer, SequentialExecutor
from fedvitals.train.lone_rows import refuse_single_rows
from fedvitals.train.pool import PoolExecutor
from fedvitals.train.precision import require_that_it_pays
from fedvitals.train.trained import Executor, Failed, Trained
from fedvitals.train.vectorised import BatchTrainer, VectorisedExecutor
from fedvitals.train.workers import Limits

log = logging.getLogger("fedvitals")

SMALL_CHUNK = 50  # clients of a small dense model: two chunks of a cohort of 100 keep two cores busy
CHUNK_BYTES = 64 * 2**20  # weights, gradients and activations of a chunk, roughly
COMPILED_CHUNK = 1000  # clients that are trained one by one, in one call
PICTURES_CHUNK = 10  # clients of a convolutional model: more gain nothing, and fewer chunks leave cores idle
PICTURE_BYTES = 192  # of patches, activations and gradients a pixel

# Clients a second on one core against one by one (`fedvitals bench batching`). In compiled layers: 18 times for the
# smallest models, 2 to 3 times for small convolutions over 28 x 28, 1.1 times for 32 and 64 channels. As a batch of
# torch's: dense models 0.9 to 5 times, GRUs 1.5 to 3.4 times, convolutions 2.6 times over 8 x 8 pixels and 1.1 over
# 28 x 28. By `vmap`, as group norm needs it, convolutions over 28 x 28 have only 0.7 to 0.9 of the speed.
PAYS = ("mlp", "logistic", "cnn", "gru")
MOST_PIXELS_BY_VMAP = 256


class Picked(NamedTuple):
    """An executor and why it is the one."""

    executor: Executor
    why: str


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """What executors are made of."""

    job: Job
    federation: Federation
    module: nn.Module
    full_steps: bool

    def local(self) -> LocalTrainer:
        return LocalTrainer(self.module, self.federation, self.job.train, self.job.seed, full_steps=self.full_steps)

    def batch(self, local: LocalTrainer) -> BatchTrainer:
        return BatchTrainer(local, self.federation, self._compiled(local), partial(self._by_hand, local))

    def _by_hand(self, local: LocalTrainer) -> HandBatched:
        return HandBatched(local, self.federation, self.job.train, self.job.seed, full_steps=self.full_steps)

    def _compiled(self, local: LocalTrainer) -> CompiledTrainer | None:
        program = self.program(local)
        if program is None:
            return None
        job, threads = self.job, 1 if _in_processes(self.job) else min(_workers(self.job), _most(self))
        layout, full_steps = local.model.flattener.layout, self.full_steps
        try:
            return CompiledTrainer(
                program, self.federation, job.train, job.seed, layout, threads=threads, full_steps=full_steps
            )
        except ValueError:  # rows that are not for it, as tokens are not for a model of one's own
            return None

    def program(self, local: LocalTrainer) -> Program | None:
        """What the compiled trainer would carry out; None where it cannot, or is not to."""
        if not self.job.execute.compiled or self.job.train.accumulate > 1 or library() is None:
            return None
        return program_of(local.model, self.federation.input_shape)


def pick(parts: Parts) -> Picked:
    """The executor of a job; a wish that cannot be met falls back to processes, saying why."""
    wish = parts.job.execute.executor
    refuse_single_rows(parts.job, parts.module, parts.federation)
    require_that_it_pays(parts.job, parts.module, parts.federation)
    local = parts.local()
    if wish == "sequential" and _in_processes(parts.job):
        raise JobError(
            f"execute.worker_mb = {parts.job.execute.worker_mb} bounds worker processes, and execute.executor = "
            '"sequential" has none: take executor = "auto" or "processes", or worker_mb = 0'
        )
    if wish in ("sequential", "processes"):
        return Picked(_alone(parts, local, wish), "asked for")
    if wish not in ("auto", "vectorised"):
        raise JobError(f"execute.executor = {wish!r} is not available in this version")
    alone = _only_alone(parts.job)
    if alone is not None:
        return _one_by_one(parts, local, alone)
    if wish == "auto" and parts.job.server.mode == "async" and parts.job.execute.clock == "real":
        return Picked(_processes(parts, local), "clients work at the same time, each on a model of its own")
    if wish == "auto":
        against = _against_batching(parts, local)
        if against is not None:
            return _one_by_one(parts, local, against)
    try:
        trainer = parts.batch(local)
    except Unbatchable as reason:
        return _one_by_one(parts, local, f"this model cannot be trained as a batch of clients: {reason}")
    return Picked(_vectorised(parts, trainer, local.model.size), f"trains the cohort as one, by {trainer.how}")


def _only_alone(job: Job) -> str | None:
    """Why clients of this job can only be trained one by one, whatever their model."""
    if job.train.checkpoint:
        return "train.checkpoint recomputes the activations of one client at a time"
    if job.train.precision != "fp32":
        return f"layers batched by hand compute in fp32; {job.train.precision} goes through each client's own model"
    return None


def _against_batching(parts: Parts, local: LocalTrainer) -> str | None:
    """Why a batch of clients would not pay, where that was measured; None when it does."""
    job = parts.job
    if job.asked == 1:
        return "one client a round is no batch"
    if parts.program(local) is not None:
        return None  # whole clients in compiled layers always pay
    if job.model.kind not in PAYS:
        return "whether a batch of clients pays was not measured for models of your own"
    if job.model.kind == "cnn" and job.model.norm != "none":
        pixels = math.prod(parts.federation.input_shape[-2:])
        if pixels > MOST_PIXELS_BY_VMAP:
            return f"a batch of clients does not pay for a cnn with {job.model.norm} norm over {pixels} pixels"
    return None


def _one_by_one(parts: Parts, local: LocalTrainer, why: str) -> Picked:
    few = (parts.job.asked == 1 or _workers(parts.job) == 1) and not _in_processes(parts.job)
    return Picked(_alone(parts, local, "sequential" if few else "processes"), why)


def _alone(parts: Parts, local: LocalTrainer, name: str) -> Executor:
    """Clients one by one, here or in processes. A batch of clients would pay for fresh memory at every step."""
    if parts.job.train.checkpoint or parts.job.train.accumulate > 1:
        give_back_freed_memory()
    if name == "sequential":
        return SequentialExecutor(local, parts.job.execute.threads)
    return _processes(parts, local)


def _processes(parts: Parts, local: LocalTrainer) -> Executor:
    def attempt(
        works: Sequence[LocalWork], weights: Tensor, integers: Mapping[str, Tensor], row: int
    ) -> Iterator[Trained | Failed]:
        for work in works:
            yield local.attempt(work, weights, integers)

    workers = _workers(parts.job)
    return PoolExecutor(
        "processes",
        attempt,
        workers=workers,
        chunk=1,
        size=local.model.size,
        most=_most(parts),
        expected=partial(_expected, parts.federation),
        limits=_limits(parts.job, workers),
    )


def _expected(federation: Federation, work: LocalWork) -> float:
    """What a client's training costs beside another's: its rows, and how slow it is made."""
    rows = len(work.y) if work.y is not None else len(federation.train_rows[work.client])
    return rows * (work.compute_factor + work.load_factor - 1.0)


def _limits(job: Job, workers: int) -> Limits:
    """What each of so many workers may take. Threads without a core of their own wait for each other, busily: workers
    of two threads each on two cores were seen to take twenty times as long as of one."""
    threads, cores = job.execute.threads, _cores()
    if threads > 1 and workers * threads > cores:
        log.warning(
            "%d workers of execute.threads = %d share %d core%s: threads without a core of their own hold each other "
            "up; right is execute.workers = 0 or threads = 1",
            *(workers, threads, cores, "" if cores == 1 else "s"),
        )
    return Limits(threads, job.execute.worker_mb)


def _vectorised(parts: Parts, trainer: BatchTrainer, size: int) -> Executor:
    row = parts.federation.input_shape
    chunk = compiled_chunk(parts.job, size) if trainer.compiled else chunk_size(parts.job, size, row)
    cohort, bounded = _most(parts), _in_processes(parts.job)
    if bounded and trainer.compiled and not parts.job.execute.chunk:  # in threads, one chunk would have all cores
        chunk = min(chunk, -(-cohort // _workers(parts.job)))
    workers = min(_workers(parts.job), -(-cohort // chunk))
    if not bounded and (workers == 1 or trainer.compiled):
        return VectorisedExecutor(trainer, chunk, parts.job.execute.threads)

    def attempt(
        works: Sequence[LocalWork], weights: Tensor, integers: Mapping[str, Tensor], row: int
    ) -> Iterator[Trained | Failed]:
        return trainer.attempt(works, weights, integers, row // chunk)

    return PoolExecutor(
        "vectorised", attempt, workers=workers, chunk=chunk, size=size, most=cohort, limits=_limits(parts.job, workers)
    )


def _in_processes(job: Job) -> bool:
    """Whether there must be worker processes even where this one would do: only they can be bounded in their memory."""
    return job.execute.worker_mb > 0


def compiled_chunk(job: Job, size: int) -> int:
    """Clients that the compiled trainer is handed at once, for it to have their updates and sampled gradients."""
    return job.execute.chunk or max(1, min(COMPILED_CHUNK, CHUNK_BYTES // (8 * size)))


def chunk_size(job: Job, size: int, row: tuple[int, ...] = ()) -> int:
    """Clients in a batch: as asked for, or what keeps a batch in the cache, whatever the machine."""
    if job.execute.chunk:
        return job.execute.chunk
    pictures = job.model.kind == "cnn"
    a_row = PICTURE_BYTES * math.prod(row[-2:]) if pictures else 4 * 4096
    a_client = 4 * size * 4 + job.train.batch_size * a_row
    return max(1, min(PICTURES_CHUNK if pictures else SMALL_CHUNK, CHUNK_BYTES // a_client))


def _most(parts: Parts) -> int:
    """Clients that a round may have at work."""
    return min(parts.job.asked, len(parts.federation.clients))


def _workers(job: Job) -> int:
    """As many as asked for, or as have a core for each of their threads."""
    return job.execute.workers or max(_cores() // job.execute.threads, 1)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
