"""One job in a process of its own: `python -m fedvitals.bench.optimise.child < job.json` prints one line of JSON.

A process of its own, so that its memory is its own: libraries, rows and models are in place when the count begins, and
so is what the first batch leaves behind for good (gradients, the libraries' own working memory).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, replace

import torch

from fedvitals.capture.nothing import NoRun
from fedvitals.capture.watermark import Watermark, find_watermark
from fedvitals.errors import JobError, TrainingError
from fedvitals.train.engine import Training
from fedvitals.train.hooks import NoHook
from fedvitals.train.job import Job
from fedvitals.train.progress import NoProgress
from fedvitals.train.threads import one_thread

LONGEST_S = 600.0
WARM_ROWS = 8


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of one job. `refused`: why it was not carried out; then nothing else is told."""

    seconds: float = 0.0  # of all rounds
    bytes_up: int = 0
    bytes_down: int = 0
    rest_bytes: int = 0  # resident before the rounds
    peak_bytes: int = 0  # the most while they went on
    accuracy: float = 0.0
    imported_bytes: int = 0  # resident once torch had been loaded and used
    virtual_s: float = 0.0  # of all rounds, where devices are imitated
    refused: str | None = None

    @property
    def taken_bytes(self) -> int:
        """What training takes beside what is there anyway."""
        return self.peak_bytes - self.rest_bytes

    @property
    def own_bytes(self) -> int:
        """What the process takes beside torch, rows and models included."""
        return self.peak_bytes - self.imported_bytes


def measure(job: Job) -> Measured:
    """Carry out a job in a child process."""
    done = subprocess.run(
        [sys.executable, "-m", "fedvitals.bench.optimise.child"],
        input=json.dumps(job.to_dict()),
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )
    lines = done.stdout.splitlines()
    if done.returncode != 0 or not lines:
        raise TrainingError(f"job {job.name} ended with {done.returncode}: {done.stderr[-500:]}")
    return Measured(**json.loads(lines[-1]))


def carry_out(job: Job, mark: Watermark) -> Measured:
    """Carry out a job here; `mark` must be one that can be set back."""
    with one_thread():
        imported = _resident_with_torch(mark)
        try:
            training = Training.prepare(job)
        except JobError as error:
            return Measured(refused=str(error))
        try:
            _warm_up(training)
            rest = mark.read().rss_bytes
            mark.reset()
            began = time.perf_counter()
            result = training.carried_out(NoRun(), NoHook(), NoProgress(), began)
            seconds, peak = time.perf_counter() - began, mark.read().peak_bytes
            virtual_s = training.clock.now_ns() / 1e9 if job.execute.clock == "virtual" else 0.0
        finally:
            training.executor.close()
    accuracy = result.accuracy if result.accuracy is not None else float("nan")
    return Measured(seconds, result.bytes_up, result.bytes_down, rest, peak, accuracy, imported, virtual_s)


def _resident_with_torch(mark: Watermark) -> int:
    """Libraries and their working memory, before there is anything to train."""
    x = torch.ones(64, 64, requires_grad=True)
    (x @ x).sum().backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return mark.read().rss_bytes


def _warm_up(training: Training) -> None:
    """Every client's first rows, once; the global model stays as it is."""
    works = training.plan(list(range(len(training.federation.clients))), Counter(), 0, NoRun())
    few = []
    for work in works:
        rows = training.federation.train_rows[work.client][:WARM_ROWS]
        few.append(replace(work, x=training.federation.x[rows], y=training.federation.y[rows]))
    for _ in training.executor.run(few, training.server.outgoing(), training.model.integers):
        pass


if __name__ == "__main__":
    print(json.dumps(asdict(carry_out(Job.from_dict(json.loads(sys.stdin.read())), find_watermark()))))
