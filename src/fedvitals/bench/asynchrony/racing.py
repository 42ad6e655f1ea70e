"""One training, timed on the virtual clock: how good its model was when."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedvitals.settings import Settings
from fedvitals.train.engine import Training
from fedvitals.train.evaluate import evaluate_groups
from fedvitals.train.hooks import NoHook
from fedvitals.train.job import Job
from fedvitals.train.progress import NoProgress
from fedvitals.train.target import Target
from fedvitals.train.threads import one_thread

LAST = 10  # evaluations whose mean is the final accuracy


@dataclass(frozen=True, slots=True)
class Race:
    """What came of a training."""

    times_s: tuple[float, ...]
    accuracies: tuple[float, ...]  # on the test rows, at those times
    slowest: float  # on the own held-out rows of the slowest tenth of the clients, at the end

    @property
    def final(self) -> float:
        return float(np.mean(self.accuracies[-LAST:]))

    def reached_s(self, accuracy: float) -> float:
        """When the model had been so good for three evaluations in a row; infinity when it never was."""
        target = Target(accuracy)
        reached = (at_s for at_s, found in zip(self.times_s, self.accuracies, strict=True) if target.held(found))
        return next(reached, math.inf)

    def at(self, times_s: Sequence[float]) -> NDArray[np.float64]:
        """The accuracy of the model that there was at these times; NaN before the first evaluation."""
        places = np.searchsorted(np.array(self.times_s), np.array(times_s), side="right")
        known = np.array([math.nan, *self.accuracies])
        found: NDArray[np.float64] = known[places]
        return found


class _Times(NoProgress):
    """Looks at the clock whenever the model was judged."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self.times_s: list[float] = []
        self.accuracies: list[float] = []

    def round_done(
        self,
        number: int,
        of: int,
        loss: float | None,
        accuracy: float | None,
        clients: int,
        failed: int,
        elapsed_s: float,
    ) -> None:
        every = self._training.job.train.evaluate_every
        if accuracy is not None and (number % every == 0 or number == of):
            self.times_s.append(self._training.clock.now_ns() / 1e9)
            self.accuracies.append(accuracy)


def raced(job: Job, delays_s: NDArray[np.float64]) -> Race:
    """Carry out a job. It is not recorded: the record of 1,000 clients would take longer than they do."""
    with one_thread():
        training = Training.prepare(job)
        times = _Times(training)
        try:
            with training.recorded(Settings(mode="off")) as run:
                training.carried_out(run, NoHook(), times, 0.0)
        finally:
            training.executor.close()
        return Race(tuple(times.times_s), tuple(times.accuracies), _slowest(training, delays_s))


def _slowest(training: Training, delays_s: NDArray[np.float64]) -> float:
    federation = training.federation
    tenth = np.argsort(-delays_s, kind="stable")[: max(1, len(delays_s) // 10)].tolist()
    rows = [federation.holdout_rows[client] for client in tenth if len(federation.holdout_rows[client])]
    _, accuracies = evaluate_groups(training.model.module, federation.x, federation.y, rows)
    return float(np.average(np.asarray(accuracies), weights=[len(own) for own in rows]))
