"""The clients' half of a round: train them, let faults strike, take in what arrives, and record it as it comes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fedvitals.capture.failures import message_of, traceback_of
from fedvitals.errors import CodecError, TrainingError
from fedvitals.faults.work import LocalWork
from fedvitals.train.arrivals import Arrival, Lost, Row, stacked
from fedvitals.train.closing import closed
from fedvitals.train.hooks import RoundUpdates
from fedvitals.train.local import unanswered
from fedvitals.train.participations import record, record_lost
from fedvitals.train.pool import LATE, PoolExecutor
from fedvitals.train.reckoning import Broke, Reckoned
from fedvitals.train.remarks import remarks
from fedvitals.train.reports import durations_s, reports
from fedvitals.train.selections import Report
from fedvitals.train.times import RoundTimes
from fedvitals.train.trained import Failed, Trained, joined, part
from fedvitals.train.uplink import stage_of
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
        self.late: dict[str, float] = {}  # when they arrived, in seconds from their start
        self.integers: dict[str, Mapping[str, Tensor]] = {}  # counted buffers, by client
        self.reports: dict[int, Report] = {}  # what came of whom, for the selection
        self._training = training
        self._rnd = rnd
        self._times = RoundTimes(training.clock, origin_ns, training.reckoner)
        # With a deadline, or more clients than are needed, who was in time shows when all are there.
        server = training.job.server
        self._holds = self._times.virtual and (server.deadline_s > 0.0 or server.over_select > 1.0)
        self._arrivals: list[Arrival] = []
        self._lost: list[Lost] = []
        self._rows: dict[str, Row] = {}
        self._ready: list[Trained] = []  # trained one by one, not yet delivered
        self._held: list[Trained] = []  # of clients whose fault needs to see the others first
        self._honest: dict[str, Tensor] = {}
        self._failures: dict[str, Failed] = {}

    def collect(self, works: Sequence[LocalWork]) -> RoundUpdates:
        """Train, and give what is to be aggregated; TrainingError when nobody is left."""
        self._rnd.selected(len(works))
        with self._phase("collect"):  # what lies between clients and the phases below: handing out, taking in, freeing
            return self._collected(works)

    def _collected(self, works: Sequence[LocalWork]) -> RoundUpdates:
        training = self._training
        with self._phase("encode"):
            # No copy, which would be as large as the model: that stands still until all are in.
            weights, integers = training.model.weights, training.model.integers
        planned = {work.name: work for work in works}
        may_be_lost = self._times.virtual
        going = self._times.handed_out([work for work in works if not (may_be_lost and self._ends_early(work))])
        for result in self._running(going, weights, integers) if going else ():
            if isinstance(result, Failed):
                self._fail(replace(result, work=planned[result.work.name]))
            else:
                result.works = tuple(planned[work.name] for work in result.works)
                self._take(result)
        self._deliver_ready()
        self._take_held(works)
        self._close(works)
        self._times.pass_round()
        return self._updates(works)

    def _phase(self, name: str) -> AbstractContextManager[object]:
        """The server's handling of messages; on the virtual clock that takes no time."""
        return nullcontext() if self._times.virtual else self._rnd.phase(name)

    def _updates(self, works: Sequence[LocalWork]) -> RoundUpdates:
        if self.late and not self._rows:
            client = min(self.late, key=lambda name: self.late[name])
            raise TrainingError(
                f"round {works[0].round}: none of {len(works)} clients was done within server.deadline_s = "
                f"{self._training.job.server.deadline_s:g}; the first, {client}, took {self.late[client]:.3g} s"
            )
        if not self._rows:
            first = next(self._failures[work.name] for work in works)
            raise TrainingError(
                f"round {works[0].round}: all {len(works)} clients failed; the first, {first.work.name}, with "
                f"{first.kind}: {first.message}"
            )
        with self._phase("decode"):
            names = tuple(work.name for work in works if work.name in self._rows)
            rows, self._rows = self._rows, {}
            samples = torch.tensor([rows[name].samples for name in names])
            return RoundUpdates(names, stacked([rows.pop(name) for name in names]), samples)

    def _ends_early(self, work: LocalWork) -> bool:
        """Whether a client is lost to its link or its owner before it has trained; that is recorded."""
        downlink = self._training.server.downlink
        reckoned = self._times.early_end(work, downlink.owed(work.name))
        if reckoned is None or reckoned.broke is None or work.silent_s > 0:
            return False
        down = downlink.sent(work.name, arrives=reckoned.broke.stage != "download")
        self._break_off(work, reckoned, reckoned.broke, down)
        return True

    def _break_off(self, work: LocalWork, reckoned: Reckoned, broke: Broke, down: int) -> None:
        now_ns = time.perf_counter_ns()
        self._lose(Lost(Failed(work, broke.stage, broke.kind, broke.message, None, now_ns, now_ns), reckoned, down))

    def _running(
        self, works: Sequence[LocalWork], weights: Tensor, integers: Mapping[str, Tensor]
    ) -> Iterator[Trained | Failed]:
        """The clients at work. On the real clock a round that does not wait for all has a worker for each of them."""
        job, executor = self._training.job, self._training.executor
        if self._times.virtual or not job.impatient:
            return executor.run(works, weights, integers)
        assert isinstance(executor, PoolExecutor), "the job has seen to it"
        return executor.run_until(works, weights, integers, job.train.clients_per_round, job.server.deadline_s)

    def _stopped(self, failed: Failed) -> None:
        """A client that was too late, on the real clock: nothing came of it, and it was no failure."""
        name, took_s = failed.work.name, (failed.end_ns - failed.start_ns) / 1e9
        self.late[name] = took_s
        self.reports[failed.work.client] = Report(0, took_s)
        self._rnd.late(
            name,
            attempt=failed.work.attempt,
            executor=self._training.executor.name,
            wire_bytes_down=self._training.server.downlink.sent(name),
            **self._times.of_failed(failed, Reckoned({})),
        )

    def _fail(self, failed: Failed) -> None:
        if failed.kind == LATE:
            self._stopped(failed)
            return
        if failed.kind == "timeout":  # the worker may have been spared the wait
            failed = replace(failed, message=unanswered(failed.work))
        down = self._training.server.downlink.sent(failed.work.name)
        self._lose(Lost(failed, self._times.failed(failed, down), down))

    def _lose(self, lost: Lost) -> None:
        self.failed += 1
        self._failures[lost.failed.work.name] = lost.failed
        if self._holds:
            self._lost.append(lost)
        else:
            self._times.wait_until(lost.reckoned.total_s)
            self._record_lost(lost)

    def _record_lost(self, lost: Lost) -> None:
        failed, broke = lost.failed, lost.reckoned.broke
        self.reports[failed.work.client] = Report(0, self._times.lost_s(failed, lost.reckoned))
        dropped = failed.kind == "timeout" or (broke is not None and broke.outcome == Outcome.DROPPED)
        outcome = Outcome.DROPPED if dropped else Outcome.FAILED
        times = self._times.of_failed(failed, lost.reckoned)
        record_lost(self._training, self._rnd, failed, outcome, down=lost.down, columns=times)

    def _take(self, trained: Trained) -> None:
        """Clients that finished: those whose fault needs the others wait, the rest go on."""
        injector, faulty = self._training.injector, bool(self._training.job.faults)
        waits = [faulty and injector.needs_cohort(work.name, work.round) for work in trained.works]
        if any(waits):
            self._held += [part(trained, [i]) for i, wait in enumerate(waits) if wait]
            rest = [i for i, wait in enumerate(waits) if not wait]
            if not rest:
                return
            trained = part(trained, rest)
        if trained.attributed:  # a batch of its own, whose number must not be lost among others
            self._deliver([trained])
            return
        self._ready.append(trained)
        waited = time.perf_counter_ns() - self._ready[0].end_ns[0]
        if len(self._ready) >= MOST_READY or waited > LONGEST_READY_NS:
            self._deliver_ready()

    def _deliver_ready(self) -> None:
        """Clients that came one by one, together: handling one costs nearly as much as handling ten."""
        ready, self._ready = self._ready, []
        if ready:
            self._deliver(ready)

    def _take_held(self, works: Sequence[LocalWork]) -> None:
        """In the order of selection, so that what they copy does not depend on who was first."""
        others = [self._honest[work.name] for work in works if work.name in self._honest]
        for trained in sorted(self._held, key=lambda one: one.works[0].client):
            self._deliver([trained], others)

    def _deliver(self, some: Sequence[Trained], others: Sequence[Tensor] = ()) -> None:
        with self._phase("decode"):
            trained = joined(some)
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
        server = self._training.server
        names = [work.name for work in trained.works]
        received = server.uplink.received(names, trained.updates, trained.integers)
        if received.refused:
            trained = self._without_refused(trained, received.refused)
            if not received.sizes:
                return
        down = [server.downlink.sent(work.name) for work in trained.works]
        reckoned = self._times.finished(trained, received.sizes, down)
        for work, one in zip(trained.works, reckoned, strict=False):
            server.uplink.heard(work.name, one.phases_s)
        arrival = self._without_broken(Arrival(trained, received.updates, received.sizes, down, reckoned))
        if arrival is None:
            return
        if self._holds:
            self._arrivals.append(arrival)
            return
        self._times.wait_until(max((one.total_s for one in arrival.reckoned), default=0.0))
        self._use(arrival)

    def _without_broken(self, arrival: Arrival) -> Arrival | None:
        """Clients whose update was lost on its way are lost after all."""
        broken = set()
        for row, reckoned in enumerate(arrival.reckoned):
            if reckoned.broke is not None:
                work = arrival.trained.works[row]
                broken.add(work.name)
                self._training.server.uplink.lost(work.name)
                self._break_off(work, reckoned, reckoned.broke, arrival.down[row])
        return arrival.parted(broken)[0]

    def _close(self, works: Sequence[LocalWork]) -> None:
        """The round has heard of everybody it will: who was in time is used, the others are late."""
        if not self._holds:
            return
        totals = {
            name: one.total_s for some in self._arrivals for name, one in zip(some.names, some.reckoned, strict=True)
        }
        arrived_s = {work.name: totals[work.name] for work in works if work.name in totals}
        job = self._training.job
        wanted = min(job.train.clients_per_round, len(works))
        missing_s = [lost.reckoned.total_s for lost in self._lost]
        end = closed(arrived_s, missing_s, wanted, job.server.deadline_s)
        self.late = {name: arrived_s[name] for name in arrived_s if name in end.late}
        for lost in self._lost:
            self._record_lost(lost.given_up_at(end.at_s))
        for arrival in self._arrivals:
            in_time, late = arrival.parted(end.late)
            if in_time is not None:
                self._use(in_time)
            if late is not None:
                self._leave_out(late)
        self._times.wait_until(end.at_s)

    def _use(self, arrival: Arrival) -> None:
        trained = arrival.trained
        for place, (work, samples) in enumerate(zip(trained.works, trained.samples.tolist(), strict=True)):
            self._rows[work.name] = Row(arrival.updates, place, float(samples))
        if trained.integers:
            self.integers |= dict(zip(arrival.names, trained.integers, strict=True))
        self._record(arrival, {})

    def _leave_out(self, arrival: Arrival) -> None:
        """Late clients finish what they do, and nobody asks them for anything else before."""
        for work, reckoned in zip(arrival.trained.works, arrival.reckoned, strict=True):
            self._training.attendance.busy(work.client, self._times.end_ns(reckoned))
            self._training.server.uplink.lost(work.name)
        self._record(arrival, {"outcome": Outcome.LATE.value, "applied_version": None, "staleness": None})

    def _without_refused(self, trained: Trained, refused: Mapping[int, CodecError]) -> Trained:
        """An update that the codec cannot take costs its client, not the cohort."""
        for place, error in refused.items():
            kind, message, text = type(error).__name__, message_of(error), traceback_of(error)
            times = trained.start_ns[place], trained.end_ns[place]
            self._fail(Failed(trained.works[place], stage_of(error), kind, message, text, *times))
        return part(trained, [place for place in range(len(trained.works)) if place not in refused])

    def _record(self, arrival: Arrival, judged: Mapping[str, Any]) -> None:
        trained = arrival.trained
        took_s = [one.total_s for one in arrival.reckoned] if arrival.reckoned else durations_s(trained)
        late = judged.get("outcome") == Outcome.LATE.value
        heard = reports(trained, self._training.job.train.epochs, took_s, late=late)
        self.reports |= {work.client: report for work, report in zip(trained.works, heard, strict=True)}
        times = self._times.columns(trained, arrival.reckoned)
        said = remarks(self._training.server.uplink, arrival.names, [one.retries for one in arrival.reckoned])
        record(
            self._training,
            self._rnd,
            trained,
            arrival.updates,
            up=arrival.sizes,
            down=arrival.down,
            columns={**times, **said, **judged},
        )
