"""The engine without rounds: participations as records, in the step that they came to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from fedvitals.train.asynchronous.flights import Flight, Gone, Landed
from fedvitals.train.participations import record, record_lost
from fedvitals.train.remarks import remarks
from fedvitals.train.trained import joined
from fedvitals.vocabulary import Outcome

if TYPE_CHECKING:
    from fedvitals.capture.nothing import NoRound
    from fedvitals.capture.rounds import RoundSession
    from fedvitals.train.engine import Training


class Recording:
    """Writes into the rounds of one run."""

    def __init__(self, training: Training, origin_ns: int) -> None:
        self._training = training
        self._origin_ns = origin_ns

    def landed(self, rnd: RoundSession | NoRound, number: int, some: Sequence[Landed], outcome: Outcome) -> None:
        """Updates that came in step `number`, all with one outcome."""
        if not some:
            return
        trained = joined([one.trained for one in some])
        record(
            self._training,
            rnd,
            trained,
            torch.stack([one.update for one in some]),
            up=[one.up for one in some],
            down=[one.flight.down for one in some],
            columns={**self._versions(number, some, outcome), **self._times(some)},
        )

    def gone(self, rnd: RoundSession | NoRound, one: Gone) -> None:
        """A client of whom nothing comes."""
        times = one.times
        columns = {
            "base_version": one.flight.base.number,
            "start_ns": times.start_ns - self._origin_ns,
            "end_ns": times.end_ns - self._origin_ns,
            "phases_s": times.phases_s,
        }
        record_lost(self._training, rnd, one.failed, one.outcome, down=one.flight.down, columns=columns)

    def unfinished(self, rnd: RoundSession | NoRound, some: Sequence[Flight]) -> None:
        """Clients that are told to stop now, or are at work when the training ends: what they were sent was sent."""
        now_ns = self._training.clock.now_ns() - self._origin_ns
        for flight in some:
            rnd.late(
                flight.work.name,
                attempt=flight.work.attempt,
                start_ns=flight.start_ns - self._origin_ns,
                end_ns=now_ns,
                executor=self._training.executor.name,
                wire_bytes_down=flight.down,
                base_version=flight.base.number,
            )

    def _versions(self, number: int, some: Sequence[Landed], outcome: Outcome) -> dict[str, Any]:
        used = outcome == Outcome.USED
        return {
            "outcome": outcome.value,
            "base_version": [one.flight.base.number for one in some],
            "applied_version": number + 1 if used else None,
            "staleness": [number - one.flight.base.number for one in some],
            "received": [one.flight.base.fingerprint for one in some],
        }

    def _times(self, some: Sequence[Landed]) -> dict[str, Any]:
        phases = dict.fromkeys(phase for one in some for phase in one.times.phases_s)
        columns: dict[str, Any] = {
            "start_ns": [one.times.start_ns - self._origin_ns for one in some],
            "end_ns": [one.times.end_ns - self._origin_ns for one in some],
            "phases_s": {phase: [one.times.phases_s.get(phase) for one in some] for phase in phases},
        }
        columns |= remarks(
            self._training.server.uplink, [one.name for one in some], [one.times.retries for one in some]
        )
        return columns
