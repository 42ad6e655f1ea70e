"""The engine without rounds, on the virtual clock: a queue of what is going to happen.

When a client is done training follows from its device and rows, so nobody is trained before that instant is due; then
all who began with the same version are, as one batch. When its update is here is known once it is encoded. Same job,
same queue: a repeat gives the same bits.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from fedvitals.faults.work import LocalWork
from fedvitals.train.asynchronous.flights import Base, Event, Flight, Freed, Gone, Landed, Manned, Stopped, Times
from fedvitals.train.asynchronous.sending import Sending
from fedvitals.train.local import unanswered
from fedvitals.train.reckoning import Broke, Reckoned
from fedvitals.train.times import RoundTimes
from fedvitals.train.trained import Failed, part
from fedvitals.vocabulary import Outcome

if TYPE_CHECKING:
    from fedvitals.train.engine import Training

Happening = Callable[[], Event | None]


class VirtualFleet(Manned):
    """Clients whose devices are imitated.

    One that goes away is waited for until `server.deadline_s`, or as long as it would have taken: nobody tells the
    server. One that needs longer than the deadline goes on, is not asked before it is done, and is late; or it is told
    to stop (`server.late = "stop"`), and nothing comes of it.
    """

    def __init__(self, training: Training) -> None:
        super().__init__()
        self._training = training
        self._reckoner = training.reckoner
        self._times = RoundTimes(training.clock, 0, self._reckoner)
        self._sending = Sending(training)
        self._queue: list[tuple[int, int, Happening]] = []
        self._order = count()
        self._untrained: dict[int, list[Flight]] = {}  # by version
        self._deadline_s = training.job.server.deadline_s
        self._stops = training.job.server.late == "stop"

    @property
    def places(self) -> int:
        return self._training.job.server.concurrency

    def send(self, work: LocalWork, base: Base) -> None:
        flight = Flight(work, base, self._training.clock.now_ns(), self._sent(work))
        self._crew.joins(flight)
        if not self._is_lost(flight):
            self._untrained.setdefault(base.number, []).append(flight)
            self._at(flight, self._reckoner.until_trained_s(work, flight.down), partial(self._trained, flight))
        if self._deadline_s:
            self._at(flight, self._deadline_s, partial(self._overdue, flight))

    def _sent(self, work: LocalWork) -> int:
        """The model goes out, in so many bytes."""
        downlink = self._training.server.downlink
        within_s = self._deadline_s if self._stops and self._deadline_s else math.inf
        return downlink.sent(work.name, arrives=self._reckoner.has_model(work, downlink.owed(work.name), within_s))

    def next(self) -> Event | None:
        while self._queue:
            due_ns, _, happens = heapq.heappop(self._queue)
            clock = self._training.clock
            clock.sleep(max(due_ns - clock.now_ns(), 0) / 1e9)
            event = happens()
            if event is not None:
                return event
        return None

    def _at(self, flight: Flight, seconds: float, happens: Happening) -> None:
        due_ns = flight.start_ns + round(seconds * 1e9)
        heapq.heappush(self._queue, (due_ns, next(self._order), happens))

    def _is_lost(self, flight: Flight) -> bool:
        """Whether a client never answers, or goes away before it has trained; when that shows is put in the queue."""
        work = flight.work
        if work.silent_s > 0:
            waited = self._patience(work.silent_s)
            self._lose(flight, Reckoned({"wait": waited}), Broke("wait", "timeout", unanswered(work), Outcome.DROPPED))
            return True
        reckoned = self._reckoner.early_end(work, flight.down)
        if reckoned is None or reckoned.broke is None:
            return False
        known_s = reckoned.total_s
        if reckoned.broke.outcome == Outcome.DROPPED:
            known_s = max(known_s, self._patience(self._reckoner.expected_s(work, flight.down)))
        waits = {**reckoned.phases_s, "wait": known_s - reckoned.total_s}
        self._lose(flight, replace(reckoned, phases_s=waits), reckoned.broke)
        return True

    def _patience(self, seconds: float) -> float:
        return min(seconds, self._deadline_s or seconds)

    def _lose(self, flight: Flight, reckoned: Reckoned, broke: Broke) -> None:
        now_ns = time.perf_counter_ns()
        failed = Failed(flight.work, broke.stage, broke.kind, broke.message, None, now_ns, now_ns)
        self._at(flight, reckoned.total_s, partial(self._gone, flight, failed, broke.outcome, reckoned))

    def _trained(self, flight: Flight) -> Event | None:
        if flight.over:
            return None
        if flight.result is None:
            self._train(flight.base)
        result, work = flight.result, flight.work
        assert result is not None, "an executor gives a result for each client"
        if isinstance(result, Failed):
            return self._gone(flight, result, Outcome.FAILED, self._reckoner.failed(work, result.stage, flight.down))
        sent = self._sending.sent(result)
        if isinstance(sent, Failed):
            return self._gone(flight, sent, Outcome.FAILED, self._reckoner.failed(work, sent.stage, flight.down))
        update, size = sent
        steps, samples = int(result.steps[0]), int(result.samples[0])
        reckoned = self._reckoner.finished(work, steps, samples, flight.down, size)
        self._training.server.uplink.heard(work.name, reckoned.phases_s)
        if reckoned.broke is not None:
            self._training.server.uplink.lost(work.name)
            self._lose(flight, reckoned, reckoned.broke)
            return None
        landed = Landed(flight, result, update, size, _times(flight, reckoned))
        self._at(flight, reckoned.total_s, partial(self._landed, landed))
        return None

    def _train(self, base: Base) -> None:
        """All who wait for it on this version, as many at a time as executors have room for."""
        waiting = self._untrained.pop(base.number)
        room = min(self.places, len(self._training.federation.clients))
        for begin in range(0, len(waiting), room):
            some = {flight.work.name: flight for flight in waiting[begin : begin + room]}
            works = self._times.handed_out([flight.work for flight in some.values()])
            for result in self._training.executor.run(works, base.weights, base.integers):
                if isinstance(result, Failed):
                    flight = some[result.work.name]
                    flight.result = replace(result, work=flight.work)
                    continue
                result.works = tuple(some[work.name].work for work in result.works)
                for row, work in enumerate(result.works):
                    some[work.name].result = part(result, [row])

    def _landed(self, landed: Landed) -> Event | None:
        if landed.flight.over:
            return None
        self._crew.leaves(landed.flight)
        return landed

    def _gone(self, flight: Flight, failed: Failed, outcome: Outcome, reckoned: Reckoned) -> Event | None:
        if flight.over:
            return None
        self._crew.leaves(flight)
        return Gone(flight, failed, outcome, _times(flight, reckoned))

    def _overdue(self, flight: Flight) -> Event | None:
        if flight.over:
            return None
        if self._stops:
            self._crew.leaves(flight)
            self._training.server.uplink.lost(flight.work.name)
            waiting = self._untrained.get(flight.base.number, [])
            if flight in waiting:
                waiting.remove(flight)
            return Stopped(flight, self._deadline_s)
        flight.overdue = True
        self._crew.waited_for -= 1
        return Freed()


def _times(flight: Flight, reckoned: Reckoned) -> Times:
    end_ns = flight.start_ns + round(reckoned.total_s * 1e9)
    return Times(flight.start_ns, end_ns, reckoned.phases_s, reckoned.retries)
