"""The engine without rounds: keep clients at work, fill the buffer, move the model.

FedBuff (Nguyen et al., AISTATS 2022) adds to the model what the clients of a buffer changed, each with the weight of
its age. FedAsync (Xie et al., arXiv:1903.03934) moves the model towards theirs, with a buffer of one in the paper. Any
other aggregator combines the buffer as it would combine a round's updates, scaled by their age.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from fedvitals.errors import TrainingError
from fedvitals.train.asynchronous.flights import Base, Event, Fleet, Flight, Freed, Gone, Landed, Stopped
from fedvitals.train.asynchronous.real import RealFleet
from fedvitals.train.asynchronous.recording import Recording
from fedvitals.train.asynchronous.staleness import too_stale, weight
from fedvitals.train.asynchronous.virtual import VirtualFleet
from fedvitals.train.attendance import LOOK_AGAIN_S, MOST_LOOKS
from fedvitals.train.hooks import RoundHook, RoundUpdates
from fedvitals.train.pool import PoolExecutor
from fedvitals.train.reports import reports
from fedvitals.train.selections import Report
from fedvitals.train.target import Target
from fedvitals.vocabulary import Outcome

if TYPE_CHECKING:
    from fedvitals.capture.nothing import NoRound, NoRun
    from fedvitals.capture.rounds import RoundSession
    from fedvitals.run import Run
    from fedvitals.train.engine import Training
    from fedvitals.train.progress import Progress
    from fedvitals.train.result import Result

log = logging.getLogger("fedvitals")

MOST_IN_VAIN = 10  # participations a client, in a row, of which nothing came, before the training is given up


def fleet_of(training: Training) -> Fleet:
    """On the job's clock."""
    if training.job.execute.clock == "virtual":
        return VirtualFleet(training)
    if not isinstance(training.executor, PoolExecutor):
        raise TrainingError(
            f'server.mode = "async" on the real clock needs execute.executor = "processes"; this job runs on '
            f'"{training.executor.name}"'
        )
    return RealFleet(training, training.executor)


class Steps:
    """One asynchronous training. A step of the server is a round of its records."""

    def __init__(self, training: Training, fleet: Fleet, run: Run | NoRun, hook: RoundHook) -> None:
        self._training = training
        self._fleet = fleet
        self._run = run
        self._hook = hook
        self._recording = Recording(training, run.origin_ns)
        self._selection = training.selection()
        self._attempts: Counter[int] = Counter()
        self._turn = 0
        self._looked: tuple[int, int] | None = None
        self._there: list[int] = []
        self._base: Base | None = None
        self._in_vain: list[Landed | Gone | Stopped] = []

    def all(self, progress: Progress, began: float) -> Result:
        """As many steps as the job has rounds."""
        training, total = self._training, self._training.job.train.rounds
        counts: Counter[str] = Counter()
        loss = accuracy = None
        target, done = Target.of(training.job), False
        for number in range(total):
            with self._run.round(number, model=training.model.as_source()) as rnd:
                step = Step(number, rnd)
                self._fill(step)
                self._move(step)
                if (number + 1) % training.job.train.evaluate_every == 0 or number + 1 == total:
                    loss, accuracy, done = training.evaluate(rnd, number, target)
                if done or number + 1 == total:
                    step.unfinished = self._fleet.unfinished
                    self._recording.unfinished(rnd, step.unfinished)
            late = len(step.late) + step.stopped + len(step.unfinished)
            counts.update(rounds=1, trained=len(step.buffer), failed=step.failed, late=late)
            elapsed = time.perf_counter() - began
            progress.round_done(number + 1, total, loss, accuracy, len(step.buffer), step.failed, elapsed)
            if done:
                break
        log.info("%d clients were at work when it ended; their updates came to nothing", len(step.unfinished))
        return training.result(self._run, loss, accuracy, counts, time.perf_counter() - began)

    def _fill(self, step: Step) -> None:
        """Until there are enough updates, or nobody is left who could bring one."""
        with step.rnd.phase("select") as asking:
            self._ask(step)
            asking.note(at_work=self._fleet.at_work)
        look = 0
        while True:
            event = self._fleet.next()
            if event is not None:
                self._take(step, event)
            elif not step.buffer:
                look += 1
                self._wait(step, look)
            if len(step.buffer) >= self._training.job.server.buffer or (event is None and step.buffer):
                break  # who was last is replaced after the step: its place begins with the new model
            self._ask(step, look)
        for some, outcome in (
            (step.buffer, Outcome.USED),
            (step.stale, Outcome.REJECTED),
            (step.late, Outcome.LATE),
        ):
            self._recording.landed(step.rnd, step.number, some, outcome)

    def _ask(self, step: Step, look: int = 0) -> None:
        """As many clients as there are free places. Who has an update in the buffer waits for the step."""
        free = self._fleet.places - self._fleet.at_work
        if free < 1:
            return
        training = self._training
        waiting = {one.flight.work.client for one in step.buffer}
        busy = waiting.union(self._fleet.busy)
        idle = [client for client in self._present(step.number, look) if client not in busy]
        if not idle:
            return
        chosen = self._selection.choose(self._turn, idle, free, sorted(busy))
        self._turn += 1
        base = self._current(step.number)
        for work in training.plan(chosen, self._attempts, step.number, self._run):
            self._fleet.send(work, base)
        self._attempts.update(chosen)
        training.take_time(training.network.server.ask_s * len(chosen))

    def _present(self, number: int, look: int) -> list[int]:
        """Who is there in this step, at work or not: looked for once, though clients are asked one by one."""
        if self._looked != (number, look):
            self._looked = (number, look)
            self._there = self._training.attendance.present(number, self._training.clock.now_ns(), look)
        return self._there

    def _current(self, number: int) -> Base:
        """The model as it is now, as clients get it: made when the first of them asks for it."""
        if self._base is None or self._base.number != number:
            training = self._training
            weights = training.server.outgoing()
            fingerprint = training.model.flattener.fingerprint(weights)
            self._base = Base(number, weights, training.model.integers, fingerprint)
        return self._base

    def _wait(self, step: Step, look: int) -> None:
        if look > MOST_LOOKS:
            raise TrainingError(
                f"step {step.number}: no client was there in {MOST_LOOKS * LOOK_AGAIN_S / 86400:.0f} days"
            )
        with step.rnd.phase("wait"):
            self._training.clock.sleep(LOOK_AGAIN_S)

    def _take(self, step: Step, event: Event) -> None:
        if isinstance(event, Freed):
            return
        work, epochs = event.flight.work, self._training.job.train.epochs
        if isinstance(event, Stopped):
            step.stopped += 1
            self._recording.unfinished(step.rnd, [event.flight])
            self._selection.heard(work.client, Report(0, event.duration_s))
            self._vainly(step, event)
            return
        if isinstance(event, Gone):
            step.failed += 1
            self._recording.gone(step.rnd, event)
            self._selection.heard(work.client, Report(0, event.times.duration_s))
            self._vainly(step, event)
            return
        staleness = step.number - event.flight.base.number
        report = reports(event.trained, epochs, [event.times.duration_s])[0]
        late = event.flight.overdue and self._training.job.server.late == "drop"
        self._selection.heard(work.client, report._replace(staleness=staleness, late=late))
        if late:
            self._training.server.uplink.lost(event.name)
            step.late.append(event)
            self._vainly(step, event)
        elif too_stale(self._training.job.server, staleness):
            self._training.server.uplink.lost(event.name)
            step.stale.append(event)
        else:
            step.buffer.append(event)
            self._in_vain.clear()

    def _vainly(self, step: Step, event: Landed | Gone | Stopped) -> None:
        """Where nothing comes of anybody, it will not do so by itself."""
        self._in_vain.append(event)
        clients = len(self._training.federation.clients)
        if len(self._in_vain) < MOST_IN_VAIN * min(clients, self._fleet.places):
            return
        said = f"step {step.number}: of the last {len(self._in_vain)} participations nothing came"
        late = [one for one in self._in_vain if isinstance(one, Landed)]
        deadline_s = self._training.job.server.deadline_s
        if isinstance(event, Stopped):
            raise TrainingError(f"{said}: nobody was done within server.deadline_s = {deadline_s:g}, all were stopped")
        if late:
            first = min(late, key=lambda one: one.times.duration_s)
            raise TrainingError(
                f"{said}: nobody was done within server.deadline_s = {deadline_s:g}; the quickest, {first.name}, took "
                f"{first.times.duration_s:.3g} s"
            )
        assert isinstance(event, Gone)
        failed = event.failed
        raise TrainingError(f"{said}; the last, {failed.work.name}, failed with {failed.kind}: {failed.message}")

    def _move(self, step: Step) -> None:
        """The step of the global model."""
        server = self._training.job.server
        names = tuple(one.name for one in step.buffer)
        weights = torch.tensor([float(one.trained.samples[0]) for one in step.buffer])
        rows = torch.stack([self._change(one) for one in step.buffer])
        ages = [weight(server, step.number - one.flight.base.number) for one in step.buffer]
        if any(age != 1.0 for age in ages):
            rows *= torch.tensor(ages).unsqueeze(1)
        integers = {one.name: one.trained.integers[0] for one in step.buffer if one.trained.integers}
        updates = RoundUpdates(names, rows, weights)
        self._training.aggregate(step.rnd, step.number, self._hook, updates, integers)

    def _change(self, one: Landed) -> torch.Tensor:
        """What a client would change: its difference from the model it began with, or from the model as it is. Running
        statistics always go towards its own: old differences, each from its own base, would add up below a variance of
        zero."""
        model, aggregator = self._training.model, self._training.job.server.aggregator
        moved = model.trainable
        if aggregator != "fedasync" and moved is None:
            return one.update
        towards = one.flight.base.weights + one.update - model.weights
        if aggregator == "fedasync" or moved is None:
            return towards
        return torch.where(moved, one.update, towards)


class Step:
    """One step in the making."""

    def __init__(self, number: int, rnd: RoundSession | NoRound) -> None:
        self.number = number
        self.rnd = rnd
        self.buffer: list[Landed] = []
        self.stale: list[Landed] = []
        self.late: list[Landed] = []
        self.unfinished: Sequence[Flight] = ()  # of the last step alone
        self.stopped = 0
        self.failed = 0
