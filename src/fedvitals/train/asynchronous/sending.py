"""The engine without rounds: an update on its way from a client that has trained to the server."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from torch import Tensor

from fedvitals.capture.failures import message_of, traceback_of
from fedvitals.train.trained import Failed, Trained
from fedvitals.train.uplink import stage_of

if TYPE_CHECKING:
    from fedvitals.train.engine import Training


class Sending:
    """Lets faults strike and the codec do its work, client by client in the order of their coming."""

    def __init__(self, training: Training) -> None:
        self._training = training
        # Faults that copy or outvote the others see as many honest updates as a step has: those that came last.
        self._honest: deque[Tensor] = deque(maxlen=training.job.server.buffer)

    def sent(self, trained: Trained) -> tuple[Tensor, int] | Failed:
        """One client's update as it arrives, and its bytes; or that it cannot be sent."""
        work = trained.works[0]
        if self._training.job.faults:
            trained.updates = self._tampered(trained)
        received = self._training.server.uplink.received([work.name], trained.updates, trained.integers)
        for error in received.refused.values():
            kind, message, text = type(error).__name__, message_of(error), traceback_of(error)
            return Failed(work, stage_of(error), kind, message, text, trained.start_ns[0], trained.end_ns[0])
        return received.updates[0], received.sizes[0]

    def _tampered(self, trained: Trained) -> Tensor:
        injector, work, honest = self._training.injector, trained.works[0], trained.updates[0]
        sent = honest
        if injector.tampers(work.name, work.round):
            sent = injector.tamper(work.name, work.attempt, work.round, honest, tuple(self._honest))
        if not injector.active(work.name, work.round):
            self._honest.append(honest)
        injector.observe(work.name, honest)
        return sent.unsqueeze(0)
