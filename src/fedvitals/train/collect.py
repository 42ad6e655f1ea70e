"""The clients' half of a round: train them, let faults strike, take in what arrives, and record it as it comes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fedvitals.capture.failures import message_of, traceback_of
from fedvitals.errors import CodecError, TrainingError
from fedvitals.faults.work import LocalWork
from fedvitals.train.hooks import RoundUpdates
from fedvitals.train.local import unanswered
from fedvitals.train.times import RoundTimes
from fedvitals.train.trained import Failed, Trained, joined, part
from fedvitals.vocabulary import Outcome

if TYPE_CHECKING:
    from fedvitals.capture.nothing import NoRound
    from fedvitals.capture.rounds import RoundSession
    from fedvitals.train.engine import Training


MOST_READY = 16
LONGEST_READY_NS = 50_000_000


class Collector:
    """One round's clients. Results are recorded as they come, and aggregated in the order of selection."""

    def __init__(self, training: Training, rnd: RoundSession | NoRound, origin_ns: int) -> None:
        self.failed = 0
        self.integers: dict[str, Mapping[str, Tensor]] = {}  # counted buffers, by client
        self._training = training
        self._rnd = rnd
        self._times = RoundTimes(training.clock, origin_ns, training.job.train.epochs, training.model.size)
        self._rows: dict[str, tuple[Tensor, float]] = {}
        self._ready: list[Trained] = []  # trained one by one, not yet delivered
        self._held: list[Trained] = []  # of clients whose fault needs to see the others first
        self._honest: dict[str, Tensor] = {}
        self._failures: dict[str, Failed] = {}
        self._received: dict[str, str] = {}  # fingerprint of what clients got, where that is not the global model

    def collect(self, works: Sequence[LocalWork]) -> RoundUpdates:
        """Train, and give what is to be aggregated; TrainingError when nobody is left."""
        training = self._training
        self._rnd.selected(len(works))
        try:
            weights, integers = training.server.outgoing(), training.model.integers
        except CodecError as error:
            raise TrainingError(f"round {works[0].round}: the global model cannot be sent: {error}") from error
        if training.server.alters_models:
            self._received = {"received": training.model.flattener.fingerprint(weights)}
        planned = {work.name: work for work in works}
        for result in training.executor.run(self._times.handed_out(works), weights, integers):
            if isinstance(result, Failed):
                self._fail(replace(result, work=planned[result.work.name]))
            else:
                result.works = tuple(planned[work.name] for work in result.works)
                self._take(result)
        self._deliver_ready()
        self._take_held(works)
        self._times.pass_round()
        return self._updates(works)

    def _updates(self, works: Sequence[LocalWork]) -> RoundUpdates:
        if not self._rows:
            first = next(self._failures[work.name] for work in works)
            raise TrainingError(
                f"round {works[0].round}: all {len(works)} clients failed; the first, {first.work.name}, with "
                f"{first.kind}: {first.message}"
            )
        names = tuple(work.name for work in works if work.name in self._rows)
        updates = torch.stack([self._rows[name][0] for name in names])
        return RoundUpdates(names, updates, torch.tensor([self._rows[name][1] for name in names]))

    def _fail(self, failed: Failed) -> None:
        silent = failed.kind == "timeout"
        if silent:  # the worker may have been spared the wait
            failed = replace(failed, message=unanswered(failed.work))
        self.failed += 1
        self._failures[failed.work.name] = failed
        self._rnd.failed(
            failed.work.name,
            stage=failed.stage,
            kind=failed.kind,
            message=failed.message,
            traceback=failed.traceback,
            attempt=failed.work.attempt,
            executor=self._training.executor.name,
            outcome=Outcome.DROPPED if silent else Outcome.FAILED,
            wire_bytes_down=self._training.server.sent(),
            **self._times.of_failed(failed),
        )

    def _take(self, trained: Trained) -> None:
        """Clients that finished: those whose fault needs the others wait, the rest go on."""
        injector = self._training.injector
        waits = [injector.needs_cohort(work.name, work.round) for work in trained.works]
        if any(waits):
            self._held += [part(trained, [i]) for i, wait in enumerate(waits) if wait]
            rest = [i for i, wait in enumerate(waits) if not wait]
            if not rest:
                return
            trained = part(trained, rest)
        if trained.attributed:  # a batch of its own, whose number must not be lost among others
            self._deliver(trained)
            return
        self._ready.append(trained)
        waited = time.perf_counter_ns() - self._ready[0].end_ns[0]
        if len(self._ready) >= MOST_READY or waited > LONGEST_READY_NS:
            self._deliver_ready()

    def _deliver_ready(self) -> None:
        """Clients that came one by one, together: handling one costs nearly as much as handling ten."""
        ready, self._ready = self._ready, []
        if ready:
            self._deliver(joined(ready))

    def _take_held(self, works: Sequence[LocalWork]) -> None:
        """In the order of selection, so that what they copy does not depend on who was first."""
        others = [self._honest[work.name] for work in works if work.name in self._honest]
        for trained in sorted(self._held, key=lambda one: one.works[0].client):
            self._deliver(trained, others)

    def _deliver(self, trained: Trained, others: Sequence[Tensor] = ()) -> None:
        if self._training.job.faults:
            self._tamper(trained, others)
        self._arrive(trained)

    def _tamper(self, trained: Trained, others: Sequence[Tensor]) -> None:
        injector, honest = self._training.injector, trained.updates
        if any(injector.tampers(work.name, work.round) for work in trained.works):
            trained.updates = honest.clone()
        for slot, work in enumerate(trained.works):
            if not injector.active(work.name, work.round):
                self._honest[work.name] = honest[slot]
            if injector.tampers(work.name, work.round):
                sent = injector.tamper(work.name, work.attempt, work.round, honest[slot], others)
                trained.updates[slot] = sent
            injector.observe(work.name, honest[slot])

    def _arrive(self, trained: Trained) -> None:
        training = self._training
        try:
            arrived, sizes = training.server.received(trained.updates)
        except CodecError as error:
            self._refuse(trained, error)
            return
        down = [training.server.sent() for _ in trained.works]
        columns = self._times.of_trained(trained, sizes, down)
        for work, update, samples in zip(trained.works, arrived, trained.samples.tolist(), strict=True):
            self._rows[work.name] = (update, float(samples))
        if trained.integers:
            names = (work.name for work in trained.works)
            self.integers |= dict(zip(names, trained.integers, strict=True))
        self._record(trained, arrived, sizes, down, columns)

    def _refuse(self, trained: Trained, error: CodecError) -> None:
        """An update that the codec cannot take costs its client, not the cohort."""
        if len(trained.works) > 1:
            for slot in range(len(trained.works)):
                self._arrive(part(trained, [slot]))
            return
        kind, message, text = type(error).__name__, message_of(error), traceback_of(error)
        times = trained.start_ns[0], trained.end_ns[0]
        self._fail(Failed(trained.works[0], "encode", kind, message, text, *times))

    def _record(
        self, trained: Trained, arrived: Tensor, sizes: list[int], down: list[int], times: Mapping[str, Any]
    ) -> None:
        cohort = self._rnd.cohort(
            [work.name for work in trained.works],
            samples=trained.samples.tolist(),
            attempts=[work.attempt for work in trained.works],
        )
        for sample in trained.sampled:
            cohort.sampled_norms(sample.step, sample.stats, sample.slots)
        columns: dict[str, Any] = {**times, **self._received}
        cohort.submit(
            updates=arrived,
            step_losses=trained.losses,
            steps=trained.steps,
            wire_bytes_up=sizes,
            wire_bytes_down=down,
            epochs=self._training.job.train.epochs,
            executor=self._training.executor.name,
            chunk=trained.chunk,
            slot=list(trained.slots),
            attributed=int(trained.attributed and not self._times.virtual),
            peak_memory_bytes=trained.peak_memory_bytes,
            **columns,
        )
