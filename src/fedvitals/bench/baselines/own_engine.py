"""Our own engine as a contestant: recording on, as everybody gets it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping

from torch import Tensor

from fedvitals.bench.baselines.as_job import job_of
from fedvitals.bench.baselines.problem import Problem
from fedvitals.settings import resolve
from fedvitals.train.engine import train
from fedvitals.train.hooks import NoHook
from fedvitals.train.job import Job


class OwnEngine:
    """One executor with so many workers, and what else the job says; `called` says what that is."""

    def __init__(
        self, executor: str, workers: int, changes: Mapping[str, object] | None = None, called: str = ""
    ) -> None:
        self.name = f"fedvitals {called or executor}" + (f", {workers} cores" if workers > 1 else "")
        self._execute = {"execute.executor": executor, "execute.workers": workers, **(changes or {})}
        self._accuracy = float("nan")

    def available(self) -> str | None:
        return None

    def prepare(self, problem: Problem) -> None:
        self._problem = problem

    def run(self, rounds: int) -> float:
        # One evaluation, at the end: the others are not timed with theirs either.
        job: Job = job_of(self._problem, rounds + 1).replaced({**self._execute, "train.evaluate_every": rounds + 1})
        watch = _Stopwatch()
        with tempfile.TemporaryDirectory() as folder:
            result = train(job, settings=resolve({"dir": folder}), hook=watch)
        self._accuracy = result.accuracy if result.accuracy is not None else float("nan")
        return watch.ended_s[-1] - watch.ended_s[0]

    def accuracy(self) -> float:
        return self._accuracy


class _Stopwatch(NoHook):
    """When each global model was there: what comes between the last one and its evaluation is not timed."""

    def __init__(self) -> None:
        self.ended_s: list[float] = []

    def after_round(self, round: int, model_state: Mapping[str, Tensor]) -> None:
        self.ended_s.append(time.perf_counter())
