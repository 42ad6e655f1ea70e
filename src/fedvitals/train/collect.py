"""The clients' half of a round: train them, let faults strike, take in what arrives, and record it as it comes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fedvitals.errors import TrainingError
from fedvitals.faults.work import LocalWork
from fedvitals.train.clock import NominalDevice, VirtualClock
from fedvitals.train.hooks import RoundUpdates
from fedvitals.train.trained import Failed, Trained, joined
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
        self.integers: list[Mapping[str, Tensor]] = []
        self._training = training
        self._rnd = rnd
        self._origin_ns = origin_ns
        self._virtual = isinstance(training.clock, VirtualClock)
        self._device = NominalDevice()
        self._rows: dict[str, tuple[Tensor, float]] = {}
        self._ready: list[Trained] = []  # trained one by one, not yet delivered
        self._held: list[Trained] = []  # of clients whose fault needs to see the others first
        self._honest: dict[str, Tensor] = {}
        self._failures: list[Failed] = []
        self._longest_s = 0.0

    def collect(self, works: Sequence[LocalWork]) -> RoundUpdates:
        """Train, and give what is to be aggregated; TrainingError when nobody is left."""
        training = self._training
        self._rnd.selected(len(works))
        weights, integers = training.model.weights.clone(), training.model.integers
        planned = {work.name: work for work in works}
        handed = [self._for_virtual_time(work) for work in works] if self._virtual else works
        for result in training.executor.run(handed, weights, integers):
            if isinstance(result, Failed):
                self._fail(result)
            else:
                result.works = tuple(planned[work.name] for work in result.works)
                self._take(result)
        self._deliver_ready()
        self._take_held(works)
        if self._virtual:
            training.clock.sleep(self._longest_s)
        if not self._rows:
            first = self._failures[0]
            raise TrainingError(
                f"round {works[0].round}: all {len(works)} clients failed; the first, {first.work.name}, with "
                f"{first.kind}: {first.message}"
            )
        names = tuple(work.name for work in works if work.name in self._rows)
        updates = torch.stack([self._rows[name][0] for name in names])
        return RoundUpdates(names, updates, torch.tensor([self._rows[name][1] for name in names]))

    def _fail(self, failed: Failed) -> None:
        self.failed += 1
        self._failures.append(failed)
        self._training.server.sent()
        self._rnd.failed(
            failed.work.name,
            stage=failed.stage,
            kind=failed.kind,
            message=failed.message,
            traceback=failed.traceback,
            attempt=failed.work.attempt,
            start_ns=self._at(failed.start_ns),
            end_ns=self._at(failed.end_ns),
            executor=self._training.executor.name,
            outcome=Outcome.DROPPED if failed.kind == "timeout" else Outcome.FAILED,
        )

    def _take(self, trained: Trained) -> None:
        """Clients that finished: those whose fault needs the others wait, the rest go on."""
        injector = self._training.injector
        waits = [injector.needs_cohort(work.name, work.round) for work in trained.works]
        if any(waits):
            self._held += [_part(trained, [i]) for i, wait in enumerate(waits) if wait]
            rest = [i for i, wait in enumerate(waits) if not wait]
            if not rest:
                return
            trained = _part(trained, rest)
        self._ready.append(trained)
        waited = time.perf_counter_ns() - self._ready[0].end_ns[0]
        if len(trained.works) > 1 or len(self._ready) >= MOST_READY or waited > LONGEST_READY_NS:
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
        training = self._training
        self._tamper(trained, others)
        arrived, sizes = training.server.received(trained.updates)
        down = [training.server.sent() for _ in trained.works]
        columns = self._times(trained, sizes, down)
        for work, update, samples in zip(trained.works, arrived, trained.samples.tolist(), strict=True):
            self._rows[work.name] = (update, float(samples))
        self.integers += trained.integers
        self._record(trained, arrived, sizes, down, columns)

    def _tamper(self, trained: Trained, others: Sequence[Tensor]) -> None:
        injector = self._training.injector
        copied = False
        for slot, work in enumerate(trained.works):
            honest = trained.updates[slot]
            if not injector.active(work.name, work.round):
                self._honest[work.name] = honest
            if injector.tampers(work.name, work.round):
                if not copied:
                    trained.updates, copied = trained.updates.clone(), True
                trained.updates[slot] = injector.tamper(work.name, work.attempt, work.round, honest, others)
            injector.observe(work.name, honest)

    def _record(
        self, trained: Trained, arrived: Tensor, sizes: list[int], down: list[int], columns: Mapping[str, Any]
    ) -> None:
        cohort = self._rnd.cohort(
            [work.name for work in trained.works],
            samples=trained.samples.tolist(),
            attempts=[work.attempt for work in trained.works],
        )
        for sample in trained.sampled:
            cohort.sampled_norms(sample.step, sample.stats, sample.slots)
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
            attributed=int(trained.attributed),
            peak_memory_bytes=trained.peak_memory_bytes,
            **columns,
        )

    # -- time

    def _times(self, trained: Trained, sizes: list[int], down: list[int]) -> dict[str, Any]:
        if self._virtual:
            return self._virtual_times(trained, sizes, down)
        waited = [self._slow_link(work, size) for work, size in zip(trained.works, sizes, strict=True)]
        columns: dict[str, Any] = {
            "start_ns": [self._at(ns) for ns in trained.start_ns],
            "end_ns": [self._at(ns) for ns in trained.end_ns],
            "phases_s": {"train": trained.train_s, "load": trained.load_s},
        }
        if any(waited):
            columns["end_ns"] = [
                self._at(time.perf_counter_ns()) if w else e for w, e in zip(waited, columns["end_ns"], strict=True)
            ]
            columns["phases_s"]["upload"] = [w or None for w in waited]
        return columns

    def _slow_link(self, work: LocalWork, size: int) -> float:
        """On the real clock a link is slow by waiting for what it adds to a nominal one."""
        if work.link_factor <= 1.0:
            return 0.0
        more = self._device.upload_s(size, work.link_factor) - self._device.upload_s(size)
        self._training.clock.sleep(more)
        return more

    def _virtual_times(self, trained: Trained, sizes: list[int], down: list[int]) -> dict[str, Any]:
        start_ns = self._training.clock.now_ns() - self._origin_ns
        phases = [self._nominal(trained, i, sizes[i], down[i]) for i in range(len(trained.works))]
        totals = [sum(one.values()) for one in phases]
        self._longest_s = max([self._longest_s, *totals])
        return {
            "start_ns": start_ns,
            "end_ns": [start_ns + round(total * 1e9) for total in totals],
            "phases_s": {name: [one[name] for one in phases] for name in ("download", "load", "train", "upload")},
        }

    def _nominal(self, trained: Trained, slot: int, size: int, down: int) -> dict[str, float]:
        work, steps = trained.works[slot], int(trained.steps[slot])
        rows = float(trained.samples[slot]) * self._training.job.train.epochs / max(steps, 1)
        parameters = self._training.model.size
        alone = self._device.train_s(steps, rows, parameters)
        return {
            "download": self._device.download_s(down, work.link_factor),
            "load": (work.load_factor - 1.0) * alone,
            "train": alone * work.compute_factor,
            "upload": self._device.upload_s(size, work.link_factor),
        }

    def _for_virtual_time(self, work: LocalWork) -> LocalWork:
        """Slowness is reckoned, not waited for; a silent client costs its silence."""
        if work.silent_s > 0:
            self._longest_s = max(self._longest_s, work.silent_s)
        return replace(work, compute_factor=1.0, load_factor=1.0, silent_s=min(work.silent_s, 1e-9))

    def _at(self, ns: int) -> int:
        if self._virtual:
            return self._training.clock.now_ns() - self._origin_ns
        return ns - self._origin_ns


def _part(trained: Trained, rows: list[int]) -> Trained:
    """Some of the clients of a batch."""
    where = {row: i for i, row in enumerate(rows)}
    sampled = []
    for sample in trained.sampled:
        kept = [i for i, slot in enumerate(sample.slots) if slot in where]
        if kept:
            slots = tuple(where[sample.slots[i]] for i in kept)
            sampled.append(sample._replace(slots=slots, stats=sample.stats[kept]))
    return replace(
        trained,
        works=tuple(trained.works[i] for i in rows),
        updates=trained.updates[rows],
        losses=trained.losses[rows],
        steps=trained.steps[rows],
        samples=trained.samples[rows],
        train_s=trained.train_s[rows],
        load_s=trained.load_s[rows],
        start_ns=[trained.start_ns[i] for i in rows],
        end_ns=[trained.end_ns[i] for i in rows],
        sampled=tuple(sampled),
        integers=tuple(trained.integers[i] for i in rows) if trained.integers else (),
        slots=[trained.slots[i] for i in rows],
    )
