"""Mixed precision: forward passes in bf16 by autocast, and whether that pays, measured before anything is trained.

Weights, gradients and SGD stay in float32. A processor without bf16 arithmetic converts back and forth instead, and
takes longer; so a job that asks for bf16 where it does not pay is refused.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedvitals.errors import JobError
from fedvitals.train.federation import Federation
from fedvitals.train.job import Job

PAYS = 1.05  # times as fast, at least: less is noise
PAIRS = 7
ENOUGH_S = 1.0  # of measuring; one pair is always measured
LEAST_S = 0.005  # of one measurement: shorter steps are repeated
ARITHMETIC = ("avx512_bf16", "amx_bf16", "sve_bf16")  # as torch names what processors have

Scores = Callable[[Tensor], Tensor]


class Steps(NamedTuple):
    """Seconds of a forward and backward pass."""

    fp32_s: float
    bf16_s: float

    @property
    def ratio(self) -> float:
        """How many times as fast bf16 is."""
        return self.fp32_s / self.bf16_s


def scores_of(module: nn.Module, precision: str) -> Scores:
    """The forward pass in this precision; scores come as float32."""
    if precision != "bf16":
        return module

    def in_bf16(x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            scores: Tensor = module(x)
        return scores.float()

    return in_bf16


def require_that_it_pays(job: Job, module: nn.Module, federation: Federation) -> None:
    """JobError where bf16 is asked for and slower than float32, or as good as."""
    if job.train.precision != "bf16" or not job.execute.measure:
        return
    rows = max(federation.train_rows, key=len)[: job.train.batch_size]
    try:
        steps = measured(module, federation.x[rows], federation.y[rows])
    except RuntimeError as error:
        raise JobError(f'train.precision = "bf16": this model does not run in bf16: {error}') from error
    if steps.ratio < PAYS:
        raise JobError(
            f'train.precision = "bf16" does not pay here: with {len(rows)} rows a batch it is {steps.ratio:.2f} times '
            f"as fast as fp32 ({1e3 * steps.bf16_s:.2f} ms against {1e3 * steps.fp32_s:.2f} ms a batch), and at least "
            f'{PAYS} would be right{_because()}; take train.precision = "fp32", or execute.measure = false for bf16 '
            "all the same"
        )


def measured(module: nn.Module, x: Tensor, y: Tensor) -> Steps:
    """Both ways in turn, on a copy of the model; the caller's random numbers stay as they were."""
    trial = copy.deepcopy(module).train()
    ways = [scores_of(trial, precision) for precision in ("fp32", "bf16")]
    with torch.random.fork_rng(devices=[]):
        once_s = [_seconds(way, x, y, 1) for way in ways]  # warms up, too
        times = max(1, round(LEAST_S / min(once_s)))
        pairs: list[list[float]] = []
        began = time.perf_counter()
        while len(pairs) < PAIRS and (not pairs or time.perf_counter() - began < ENOUGH_S):
            pairs.append([_seconds(way, x, y, times) for way in ways])
    return Steps(*(statistics.median(pair[way] for pair in pairs) for way in (0, 1)))


def _seconds(scores: Scores, x: Tensor, y: Tensor, times: int) -> float:
    began = time.perf_counter()
    for _ in range(times):
        F.cross_entropy(scores(x), y).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return (time.perf_counter() - began) / times


def _because() -> str:
    if any(torch.cpu.get_capabilities().get(name) for name in ARITHMETIC):
        return ""
    return f"; this processor has no bf16 arithmetic ({', '.join(ARITHMETIC[:2])})"
