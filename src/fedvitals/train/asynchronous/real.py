"""The engine without rounds, on the real clock: worker processes, each at work on a model of its own.

As many clients are at work as there are workers, at most `server.concurrency`. Who is done first is the machine's to
say, so repeats differ.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from fedvitals.faults.work import LocalWork
from fedvitals.train.asynchronous.flights import Base, Event, Flight, Gone, Landed, Manned, Times
from fedvitals.train.asynchronous.sending import Sending
from fedvitals.train.pool import PoolExecutor
from fedvitals.train.trained import Failed, Trained
from fedvitals.vocabulary import Outcome

if TYPE_CHECKING:
    from fedvitals.train.engine import Training


class RealFleet(Manned):
    """Clients in the workers of a pool."""

    def __init__(self, training: Training, pool: PoolExecutor) -> None:
        super().__init__()
        self._training = training
        self._pool = pool
        self._sending = Sending(training)
        self._flights: dict[str, Flight] = {}
        self._done: deque[Trained | Failed] = deque()

    @property
    def places(self) -> int:
        return min(self._training.job.server.concurrency, self._pool.workers)

    def send(self, work: LocalWork, base: Base) -> None:
        flight = Flight(work, base, self._training.clock.now_ns(), self._training.server.downlink.sent(work.name))
        self._crew.joins(flight)
        self._flights[work.name] = flight
        self._pool.hand_out(work, base.weights, base.integers)

    def next(self) -> Event | None:
        if not self._done and self._flights:
            self._done += self._pool.take()
        if not self._done:
            return None
        result = self._done.popleft()
        name = result.work.name if isinstance(result, Failed) else result.works[0].name
        flight = self._flights.pop(name)
        self._crew.leaves(flight)
        return self._failed(flight, result) if isinstance(result, Failed) else self._landed(flight, result)

    def _landed(self, flight: Flight, trained: Trained) -> Event:
        trained.works = (flight.work,)
        sent = self._sending.sent(trained)
        if isinstance(sent, Failed):
            return self._failed(flight, sent)
        phases_s: dict[str, float | None] = {phase: float(seconds[0]) for phase, seconds in trained.phases_s.items()}
        phases_s["upload"] = phases_s["upload"] or None  # who has no slow link has timed no transfer
        times = Times(trained.start_ns[0], trained.end_ns[0], phases_s)
        return Landed(flight, trained, *sent, times)

    def _failed(self, flight: Flight, failed: Failed) -> Event:
        silent = failed.kind == "timeout"
        waited = {"wait": flight.work.silent_s} if silent and flight.work.silent_s else {}
        times = Times(min(flight.start_ns, failed.start_ns), failed.end_ns, waited)
        outcome = Outcome.DROPPED if silent else Outcome.FAILED
        return Gone(flight, replace(failed, work=flight.work), outcome, times)
