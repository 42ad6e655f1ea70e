"""The engine: a job in, a trained model and its records out."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from torch import Tensor

from fedvitals.capture.nothing import NoRound, NoRun
from fedvitals.capture.rounds import RoundSession
from fedvitals.errors import TrainingError
from fedvitals.faults.injector import Injector
from fedvitals.faults.work import LocalWork
from fedvitals.run import Run, start
from fedvitals.settings import Settings, resolve
from fedvitals.train.aggregate import make, own_rate
from fedvitals.train.attendance import LOOK_AGAIN_S, MOST_LOOKS, Attendance
from fedvitals.train.build import build
from fedvitals.train.clock import RealClock, VirtualClock
from fedvitals.train.collect import Collector
from fedvitals.train.device import NOMINAL
from fedvitals.train.device_files import described
from fedvitals.train.evaluate import evaluate, evaluate_groups
from fedvitals.train.executors import Parts, pick
from fedvitals.train.federation import Federation
from fedvitals.train.flat import FlatModel
from fedvitals.train.hooks import NoHook, RoundHook, RoundUpdates
from fedvitals.train.idle_keys import tell_idle
from fedvitals.train.job import Job
from fedvitals.train.links import Links
from fedvitals.train.models import build_model
from fedvitals.train.network import Network, network_of
from fedvitals.train.planted_faults import check_faults
from fedvitals.train.pool import PoolExecutor
from fedvitals.train.progress import NoProgress, Progress
from fedvitals.train.pruning import Pruning
from fedvitals.train.reckoning import Reckoner
from fedvitals.train.remembering import rows_of_all
from fedvitals.train.result import Result
from fedvitals.train.sections import ObserveSpec
from fedvitals.train.selections import Selection
from fedvitals.train.selections import make as make_selection
from fedvitals.train.server import Server
from fedvitals.train.target import Target
from fedvitals.train.threads import one_thread
from fedvitals.train.trained import Executor

log = logging.getLogger("fedvitals")

CLIENTS_JUDGED_EVERY = 10  # evaluations of the global model between two on every client's own rows


def train(
    job: Job,
    *,
    settings: Settings | None = None,
    progress: Progress | None = None,
    hook: RoundHook | None = None,
) -> Result:
    """Carry out a job. Recorded as the settings and the job's `observe` say; `mode = "off"` records nothing."""
    observed = observing(job, settings or resolve())
    shown = progress or NoProgress()
    began = time.perf_counter()
    with one_thread():
        training = Training.prepare(job, full_steps=observed.steps == "full")
        try:
            shown.began(job, len(training.federation.clients), training.executor.name, training.why)
            with training.recorded(observed) as run:
                result = training.carried_out(run, hook or NoHook(), shown, began)
        finally:
            training.executor.close()
    shown.ended(result)
    return result


def observing(job: Job, settings: Settings) -> Settings:
    """The settings with what the job itself asks for; a key that the job leaves alone keeps its setting."""
    plain = ObserveSpec()
    names = {f.name for f in fields(Settings)}
    asked = {
        f.name: getattr(job.observe, f.name)
        for f in fields(ObserveSpec)
        if f.name in names and getattr(job.observe, f.name) != getattr(plain, f.name)
    }
    return replace(settings, **asked)


@dataclass(slots=True, eq=False)
class Training:
    """A job with everything in place to begin."""

    job: Job
    federation: Federation
    model: FlatModel
    executor: Executor
    why: str
    injector: Injector
    server: Server
    clock: RealClock | VirtualClock
    network: Network
    attendance: Attendance

    @staticmethod
    def prepare(job: Job, *, full_steps: bool = False) -> Training:
        """Load, deal, build and check: whatever is wrong with a job shows here, before anything is written."""
        links = Links(job)
        aggregator = make(job.server.aggregator, job.server.lr)
        federation = build(job)
        model = FlatModel(build_model(job, federation), trained=False)  # clients' copies are
        layers = [(layer.name, layer.shape) for layer in model.layers if layer.trainable]
        injector = Injector(
            job.faults, federation.clients, job.seed, trainable_layers=layers, classes=federation.classes
        )
        check_faults(job, federation)
        tell_idle(job)
        network = network_of(job.network.profile, federation.clients, job.seed)
        attendance = Attendance(network, job.train.exclude)
        clock = VirtualClock() if job.execute.clock == "virtual" else RealClock()
        samples = rows_of_all(job, federation, model.size)
        server = Server(model, aggregator, *links.of(model), Pruning.of(job, model), samples, job.server.average)
        picked = pick(Parts(job, federation, build_model(job, federation), full_steps))  # last: it may fork
        return Training(
            job, federation, model, picked.executor, picked.why, injector, server, clock, network, attendance
        )

    @property
    def reckoner(self) -> Reckoner:
        """What clients' work takes on the virtual clock."""
        spec = self.job.train
        return Reckoner(self.network, spec.epochs, spec.step_rows, self.model.size, self._rows_of_work)

    def selection(self) -> Selection:
        """The job's way to choose clients, before its first choice."""
        server = self.job.server
        return make_selection(server.selection, self.job.seed, len(self.federation.clients), server.floor)

    def _rows_of_work(self, work: LocalWork) -> int:
        return len(work.y) if work.y is not None else len(self.federation.train_rows[work.client])

    @contextmanager
    def recorded(self, settings: Settings) -> Iterator[Run | NoRun]:
        extra: dict[str, Any] = {
            "executor": self.executor.name,
            "executor_why": self.why,
            "data_digest": self.federation.digest,
            "engine_threads": self.job.execute.threads,  # that train clients; the server has one
            "clock": self.job.execute.clock,
            "server_lr": self.job.server.lr or own_rate(self.job.server.aggregator),
        }
        if isinstance(self.executor, PoolExecutor):
            extra["worker_start_s"] = round(self.executor.start_s, 4)
        if self.job.execute.clock == "virtual":
            extra["network"] = self.network.described()
        elif any(fault.kind == "slow-link" for fault in self.job.faults):
            extra["link"] = described(NOMINAL)  # that slow ones are so many times slower than
        config = self.job.to_dict()
        with start(
            self.job.name, config=config, settings=settings, now_ns=self.clock.now_ns, environment_extra=extra
        ) as run:
            yield run

    def carried_out(self, run: Run | NoRun, hook: RoundHook, progress: Progress, began: float) -> Result:
        """In rounds, or without."""
        if self.job.server.mode == "sync":
            return self.rounds(run, hook, progress, began)
        from fedvitals.train.asynchronous.steps import Steps, fleet_of

        return Steps(self, fleet_of(self), run, hook).all(progress, began)

    def rounds(self, run: Run | NoRun, hook: RoundHook, progress: Progress, began: float) -> Result:
        """All rounds, one after the other."""
        job, total = self.job, self.job.train.rounds
        selection = self.selection()
        attempts: Counter[int] = Counter()
        counts: Counter[str] = Counter()
        loss = accuracy = None
        target, done = Target.of(job), False
        for number in range(total):
            with run.round(number, model=self.model.as_source()) as rnd:
                works = self._selected(rnd, number, selection, attempts, run)
                came = self._stepped(rnd, works, selection, hook, run.origin_ns)
                counts.update(came)
                if (number + 1) % job.train.evaluate_every == 0 or number + 1 == total:
                    loss, accuracy, done = self.evaluate(rnd, number, target)
            counts["rounds"] += 1
            took_s = time.perf_counter() - began
            with run.span("fl.progress"):  # a terminal that is slow holds up the training
                progress.round_done(number + 1, total, loss, accuracy, came["trained"], came["failed"], took_s)
            if done:
                break
        return self.result(run, loss, accuracy, counts, time.perf_counter() - began)

    def _selected(
        self, rnd: RoundSession | NoRound, number: int, selection: Selection, attempts: Counter[int], run: Run | NoRun
    ) -> list[LocalWork]:
        """What this round's clients will do."""
        present = self.present(rnd, number)
        with rnd.phase("select", **({"available": len(present)} if self.network.imitated else {})):
            chosen = selection.choose(number, present, self.job.asked)
            works = self.plan(chosen, attempts, number, run)
            attempts.update(chosen)
            self.take_time(self.network.server.select_s(len(chosen)))
        return works

    def _stepped(
        self, rnd: RoundSession | NoRound, works: list[LocalWork], selection: Selection, hook: RoundHook, origin_ns: int
    ) -> Counter[str]:
        """Train these clients, and move the model by what comes; how many did. Their updates, each as large as the
        model, end with this call: kept until the next round has its own, they would be there while that trains."""
        collector = Collector(self, rnd, origin_ns)
        updates = collector.collect(works)
        for client, report in sorted(collector.reports.items()):
            selection.heard(client, report)
        self.aggregate(rnd, works[0].round, hook, updates, collector.integers)
        return Counter(trained=len(updates.clients), failed=collector.failed, late=len(collector.late))

    def present(self, rnd: RoundSession | NoRound, number: int) -> list[int]:
        """Who can be asked. Where nobody can, the round waits for somebody to come."""
        present = self.attendance.present(number, self.clock.now_ns())
        if present:
            return present
        with rnd.phase("wait"):
            for look in range(1, MOST_LOOKS + 1):
                self.clock.sleep(LOOK_AGAIN_S)
                present = self.attendance.present(number, self.clock.now_ns(), look)
                if present:
                    return present
        raise TrainingError(f"round {number}: no client was there in {MOST_LOOKS * LOOK_AGAIN_S / 86400:.0f} days")

    def take_time(self, seconds: float) -> None:
        """What the server does takes time where a network is imitated, which needs the virtual clock."""
        if self.network.imitated:
            self.clock.sleep(seconds)

    def plan(self, chosen: list[int], attempts: Counter[int], number: int, run: Run | NoRun) -> list[LocalWork]:
        """What each client will do, and which of its steps are looked at: asked once for equally many steps."""
        federation, spec = self.federation, self.job.train
        sampled: dict[int, tuple[int, ...]] = {}
        works = []
        for client in chosen:
            rows = federation.train_rows[client]
            steps = -(-rows.shape[0] // spec.step_rows) * spec.epochs
            if steps not in sampled:
                sampled[steps] = run.plan_steps(steps)
            work = LocalWork(
                client=client,
                name=federation.clients[client],
                attempt=attempts[client],
                round=number,
                lr=spec.lr,
                sample_steps=sampled[steps],
                pruned=self.server.pruned,
            )
            works.append(self._struck(work) if self.job.faults else work)
        return works

    def _struck(self, work: LocalWork) -> LocalWork:
        """The plan after faults had their say. A slow link is waited for by what the codec makes of an update."""
        planned = self.injector.plan(work, partial(self.federation.rows_of, work.client))
        if planned.link_factor <= 1.0 or isinstance(self.clock, VirtualClock):
            return planned
        return replace(planned, message_bytes=self.server.uplink.expected(work.name))

    def aggregate(
        self,
        rnd: RoundSession | NoRound,
        number: int,
        hook: RoundHook,
        updates: RoundUpdates,
        integers: Mapping[str, Mapping[str, Tensor]],
    ) -> None:
        with rnd.phase("aggregate"):
            delay = self.injector.aggregation_delay_s(number)
            if delay > 0:
                self.clock.sleep(delay)
            kept = updates.checked(number, hook.before_aggregate(number, updates))
            rejected = set(updates.clients).difference(kept.clients)
            if rejected:
                rnd.rejected(sorted(rejected))
                for name in rejected:
                    self.server.uplink.lost(name)
            self.take_time(self.network.server.aggregate_s(len(kept.clients), self.model.size))
            self.server.aggregate(kept, [integers[name] for name in kept.clients if name in integers])
            rollback = hook.after_round(number, self.model.module.state_dict())
            if rollback is not None:
                log.warning("round %d was rolled back: %s", number, rollback.reason)
                self.server.roll_back(rollback.state)

    def evaluate(self, rnd: RoundSession | NoRound, number: int, target: Target) -> tuple[float, float, bool]:
        """Loss, accuracy, and whether that was the target; now and then, and at the end, on clients' own rows too."""
        federation = self.federation
        with rnd.phase("evaluate"), self.server.judged():
            self.take_time(self.network.server.evaluate_s(len(federation.test_rows), self.model.size))
            loss, accuracy = evaluate(self.model.module, federation.x, federation.y, federation.test_rows)
            rnd.evaluated(loss=loss, accuracy=accuracy, samples=len(federation.test_rows))
            done = target.held(accuracy, number + 1)
            last = done or number + 1 == self.job.train.rounds
            if last or (number + 1) % (CLIENTS_JUDGED_EVERY * self.job.train.evaluate_every) == 0:
                self._evaluate_clients(rnd)
        return loss, accuracy, done

    def _evaluate_clients(self, rnd: RoundSession | NoRound) -> None:
        held = [(name, rows) for name, rows in zip(self.federation.clients, self.federation.holdout_rows, strict=True)]
        held = [(name, rows) for name, rows in held if len(rows)]
        rows_held = sum(len(rows) for _, rows in held)
        self.take_time(self.network.server.evaluate_s(rows_held, self.model.size))
        losses, accuracies = evaluate_groups(
            self.model.module, self.federation.x, self.federation.y, [rows for _, rows in held]
        )
        rnd.evaluated_each(
            [name for name, _ in held],
            losses=losses.tolist(),
            accuracies=accuracies.tolist(),
            samples=[len(rows) for _, rows in held],
        )

    def result(
        self, run: Run | NoRun, loss: float | None, accuracy: float | None, counts: Counter[str], wall_s: float
    ) -> Result:
        self.server.finish()
        return Result(
            run_id=run.id,
            rounds=counts["rounds"],
            accuracy=accuracy,
            loss=loss,
            wall_s=wall_s,
            bytes_up=self.server.uplink.bytes,
            bytes_down=self.server.downlink.bytes,
            weights_sha256=self.model.sha256(),
            executor=self.executor.name,
            clients_per_s=counts["trained"] / wall_s if wall_s > 0 else 0.0,
            failed=counts["failed"],
            late=counts["late"],
            model=self.model.released(),
        )
