"""Many clients in one call: by the compiled trainer where it can, else as one program of torch's.

Memory is bounded by chunks. The chunk size is a function of the job alone, because the last bits of what torch computes
depend on who is trained together.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
from torch import Tensor

from fedvitals.capture.resources import peak_rss_bytes
from fedvitals.faults.work import LocalWork
from fedvitals.train.batched.cohort import HandBatched
from fedvitals.train.compiled import CompiledTrainer
from fedvitals.train.federation import Federation
from fedvitals.train.local import LocalTrainer, is_slow, leak, slowed
from fedvitals.train.threads import made_on
from fedvitals.train.trained import Failed, Learnt, Trained

log = logging.getLogger("fedvitals")


class BatchTrainer:
    """Trains many clients at once. `local` trains those that cannot be among others. Where there is a compiled trainer,
    torch's program is made only when a client comes that is not for the compiled one."""

    def __init__(
        self,
        local: LocalTrainer,
        federation: Federation,
        compiled: CompiledTrainer | None,
        by_hand: Callable[[], HandBatched],
    ) -> None:
        self._local = local
        self._rows = [len(rows) for rows in federation.train_rows]
        self._compiled = compiled
        self._make_by_hand = by_hand
        self.how = compiled.how if compiled is not None else self._by_hand.how

    @cached_property
    def _by_hand(self) -> HandBatched:
        return self._make_by_hand()

    @property
    def compiled(self) -> bool:
        """Whether what becomes of a client has nothing to do with who is trained beside it."""
        return self._compiled is not None

    def attempt(
        self, works: Sequence[LocalWork], weights: Tensor, integers: Mapping[str, Tensor], chunk: int
    ) -> Iterator[Trained | Failed]:
        """Train a chunk; clients that are meant to fail, fail on their own."""
        plain, others = [], []
        for work in works:
            if work.error is not None or work.silent_s > 0:
                yield self._local.attempt(work, weights, integers)
            elif self._compiled is not None and self._compiled.takes(work):
                plain.append(work)
            else:
                others.append(work)
        for some, train in ((plain, self._by_compiled), (others, self._by_torch)):
            if some:
                yield from self._attempt_together(some, train, weights, integers, chunk)

    def _attempt_together(
        self,
        works: Sequence[LocalWork],
        train: Callable[[Sequence[LocalWork], Sequence[int], Tensor], Learnt],
        weights: Tensor,
        integers: Mapping[str, Tensor],
        chunk: int,
    ) -> Iterator[Trained | Failed]:
        start_ns = time.perf_counter_ns()
        counts = [len(work.y) if work.y is not None else self._rows[work.client] for work in works]
        try:
            learnt = train(works, counts, weights)
            yield _finished(
                [works[i] for i in learnt.order], [counts[i] for i in learnt.order], learnt, start_ns, chunk
            )
        except Exception as error:
            # Whose fault it was shows when each is trained alone; the others are not lost.
            log.warning("the batch failed (%s: %s); its clients are trained one by one", type(error).__name__, error)
            for work in works:
                yield self._local.attempt(work, weights, integers)

    def _by_compiled(self, works: Sequence[LocalWork], counts: Sequence[int], weights: Tensor) -> Learnt:
        assert self._compiled is not None
        return self._compiled.train(works, counts, weights)

    def _by_torch(self, works: Sequence[LocalWork], counts: Sequence[int], weights: Tensor) -> Learnt:
        return self._by_hand.train(works, counts, weights)

    def close(self) -> None:
        if self._compiled is not None:
            self._compiled.close()


def _finished(works: Sequence[LocalWork], counts: Sequence[int], learnt: Learnt, start_ns: int, chunk: int) -> Trained:
    updates = learnt.updates
    share = learnt.steps / max(int(learnt.steps.sum()), 1)
    slow = {place: work for place, work in enumerate(works) if is_slow(work)}
    for work in works:
        leak(work)
    peak, end_ns = peak_rss_bytes(), time.perf_counter_ns()
    phases_s = {
        "train": (end_ns - start_ns) / 1e9 * share,
        "load": np.zeros(len(works)),
        "upload": np.zeros(len(works)),
    }
    ends = [end_ns] * len(works)
    for place, work in slow.items():
        took, more_s = slowed(work, float(phases_s["train"][place]), 0.0, updates[place].nbytes)
        for phase, seconds in took.items():
            phases_s[phase][place] = seconds
        ends[place] = end_ns + round(more_s * 1e9)
    if slow:  # devices are slow side by side
        time.sleep((max(ends) - end_ns) / 1e9)
    return Trained(
        works=tuple(works),
        updates=updates,
        losses=learnt.losses,
        steps=learnt.steps,
        samples=np.array(counts),
        phases_s=phases_s,
        start_ns=[start_ns] * len(works),
        end_ns=ends,
        sampled=learnt.sampled,
        peak_memory_bytes=peak,
        attributed=True,
        chunk=chunk,
        slots=range(len(works)),
    )


class VectorisedExecutor:
    """Chunks of a cohort, one after the other, in this process."""

    name = "vectorised"

    def __init__(self, trainer: BatchTrainer, chunk: int, threads: int = 1) -> None:
        self._trainer = trainer
        self._chunk = chunk
        self._threads = threads  # as many as a worker would have: else its last bits would be others

    def run(
        self, works: Sequence[LocalWork], weights: Tensor, integers: Mapping[str, Tensor]
    ) -> Iterator[Trained | Failed]:
        for number, start in enumerate(range(0, len(works), self._chunk)):
            chunk = works[start : start + self._chunk]
            yield from made_on(self._threads, self._trainer.attempt(chunk, weights, integers, number))

    def close(self) -> None:
        self._trainer.close()
