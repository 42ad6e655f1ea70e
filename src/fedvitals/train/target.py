"""When a training has got what it was for, and ends before its last round."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedvitals.train.job import Job

IN_A_ROW = 3  # evaluations: one alone may be luck


class Target:
    """An accuracy that is to be reached and held; 0 never is. Nothing counts before `first` rounds are over: a model of
    which more is to be cut is not yet the one that was asked for."""

    def __init__(self, accuracy: float, first: int = 0) -> None:
        self._accuracy = accuracy
        self._first = first
        self._held = 0

    @staticmethod
    def of(job: Job) -> Target:
        """What a job is to reach, with all cut that it cuts."""
        return Target(job.train.stop_at, job.pruning_rounds[1] if job.server.prune else 0)

    def held(self, accuracy: float, rounds: float = math.inf) -> bool:
        """Whether it is, after one more evaluation, when so many rounds are over."""
        self._held = self._held + 1 if accuracy >= self._accuracy and rounds >= self._first else 0
        return self._accuracy > 0.0 and self._held >= IN_A_ROW
