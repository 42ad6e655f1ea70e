"""What watching costs: the same training watched and unwatched, from before `start` to after its close.

Halves are at least two seconds, interleaved; loading data and building the model are in neither. The coverage beside
each ratio says what was recorded for it. For comparison: everything at every step, and seven `.item()` a layer a step.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from fedvitals.bench.own_loop import OwnLoop
from fedvitals.bench.pairs import Cost, pairs
from fedvitals.bench.table import Row, spread
from fedvitals.settings import Settings, resolve
from fedvitals.store import open_store
from fedvitals.train.engine import Training
from fedvitals.train.hooks import NoHook
from fedvitals.train.job import Job
from fedvitals.train.progress import NoProgress
from fedvitals.train.threads import one_thread

GOAL = 1.02
MODELS: dict[str, dict[str, dict[str, object]]] = {
    "mlp": {
        "data": {"source": "synthetic", "partition": "iid", "holdout": 0.0},
        "model": {"kind": "mlp", "hidden": [64]},
        "train": {"epochs": 3},
    },
    "cnn": {
        "data": {"source": "fedvitals.bench.rows:pictures", "partition": "iid"},
        "model": {"kind": "cnn"},
        "train": {"epochs": 1},
    },
    "gru": {
        "data": {"source": "fedvitals.bench.rows:sentences", "partition": "iid"},
        "model": {"kind": "gru", "hidden": [32]},
        "train": {"epochs": 1},
    },
}
COHORTS = {"sequential": 10, "vectorised": {"mlp": 100, "cnn": 10, "gru": 20}}


def run(quick: bool = False) -> list[Row]:
    """Ratios of wall and CPU time, and coverage, for each model and executor, and for a loop of one's own."""
    count, half_s = (2, 0.3) if quick else (30, 2.0)
    rows: list[Row] = []
    with one_thread():
        for model in MODELS:
            for executor in ("sequential", "vectorised"):
                rows += _engine_case(model, executor, count, half_s)
        rows += _loop_cases(count, half_s)
    return rows


def _engine_case(model: str, executor: str, count: int, half_s: float) -> list[Row]:
    job = _job(model, executor)
    job = job.replaced({"train.rounds": _rounds_for(job, half_s)})
    with tempfile.TemporaryDirectory() as folder:
        off, on = resolve({"mode": "off"}), resolve({"mode": "on", "dir": folder})
        ready = Ready(job)
        measured = pairs(lambda: ready.go(off), lambda: ready.go(on), count)
        coverage = _coverage(on)
    case = f"{model} {executor}"
    return [*_ratios(case, measured, GOAL), *coverage_rows(case, coverage)]


class Ready:
    """A training with its data loaded and its model built, put back to the first weights after each go."""

    def __init__(self, job: Job) -> None:
        self._training = Training.prepare(job)
        self._first = self._training.model.weights.clone()

    def go(self, settings: Settings) -> None:
        with self._training.recorded(settings) as run:
            self._training.rounds(run, NoHook(), NoProgress(), time.perf_counter())
        with torch.no_grad():
            self._training.model.weights.copy_(self._first)


def _rounds_for(job: Job, half_s: float) -> int:
    """Rounds that take at least `half_s` unwatched, found by trying."""
    probe, off = Ready(job.replaced({"train.rounds": 3})), resolve({"mode": "off"})
    probe.go(off)
    began = time.perf_counter()
    probe.go(off)
    a_round = (time.perf_counter() - began) / 3
    return max(3, int(1.25 * half_s / a_round) + 1)


def _job(model: str, executor: str) -> Job:
    cohort = COHORTS[executor]
    size = cohort[model] if isinstance(cohort, dict) else cohort
    plan = {name: dict(section) for name, section in MODELS[model].items()}
    plan["data"]["clients"] = 100
    plan["train"] |= {"clients_per_round": size, "batch_size": 32, "lr": 0.05}
    plan["execute"] = {"executor": executor, "workers": 1, "chunk": 0 if executor == "sequential" else size}
    return Job.from_dict({"name": f"overhead-{model}", **plan})


def _ratios(case: str, measured: list[tuple[Cost, Cost]], goal: float | None) -> list[Row]:
    rows = []
    for name in ("wall", "cpu"):
        values = [getattr(other, f"{name}_s") / getattr(plain, f"{name}_s") for plain, other in measured]
        middle, low, high = spread(values)
        rows.append(Row(case, f"{name} watched / unwatched", middle, low, high, "ratio", goal, at_least=False))
    return rows


@dataclass(slots=True)
class Coverage:
    """Shares of the last watched run's participations that have what is always recorded."""

    participations: int
    statistics: float
    sketches: float
    sampled: float


def _coverage(settings: Settings) -> Coverage:
    reader = open_store(settings).open("last")
    try:
        participations = reader.participations()
        sampled = {key for block in reader.step_blocks() for key in zip(block.clients, block.attempts, strict=True)}
        sketched = {block.id for block in reader.update_blocks() if block.sketches is not None}
    finally:
        reader.close()
    count = max(len(participations), 1)
    return Coverage(
        len(participations),
        sum(p.update_norm is not None and p.block is not None for p in participations) / count,
        sum(p.block in sketched for p in participations) / count,
        sum((p.client, p.attempt) in sampled for p in participations) / count,
    )


def coverage_rows(case: str, coverage: Coverage) -> list[Row]:
    shares = (
        ("with statistics", coverage.statistics),
        ("with sketch", coverage.sketches),
        ("with a sampled step", coverage.sampled),
    )
    return [Row(case, f"participations {name}", share, share, share, "share", 1.0) for name, share in shares]


def _loop_cases(count: int, half_s: float) -> list[Row]:
    """A loop of the user's own, through the public API."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        loop = OwnLoop(half_s)
        default = resolve({"mode": "on", "dir": folder})
        measured = pairs(lambda: loop.go(resolve({"mode": "off"})), lambda: loop.go(default), count)
        rows += _ratios("mlp own loop", measured, GOAL) + coverage_rows("mlp own loop", _coverage(default))
        few = max(2, count // 5)
        for case, settings, by_hand in (
            ("mlp own loop, everything at every step", resolve({"dir": folder, "steps": "full"}), False),
            ("mlp own loop, seven .item() a layer a step", resolve({"mode": "off"}), True),
        ):
            other = _going(loop, settings, by_hand)
            rows += _ratios(case, pairs(lambda: loop.go(resolve({"mode": "off"})), other, few), None)
    return rows


def _going(loop: OwnLoop, settings: Settings, by_hand: bool) -> Callable[[], None]:
    return lambda: loop.go(settings, by_hand=by_hand)
