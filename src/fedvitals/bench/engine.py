"""How fast the engine is: clients per second and accuracy after equal rounds, beside other ways to run the same.

Everyone trains the same clients with the same model and optimizer (see `baselines/problem.py`), takes turns with the
others, and is timed over equally many rounds after one to warm up (see `baselines/protocol.py`). Ours records all the
while. pfl-research and Flower's simulation take part when the extra `bench` is installed, here or in the interpreter
that FEDVITALS_BENCH_PYTHON names. Everything runs on one thread a process; Flower always uses all cores.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

from fedvitals.bench.baselines.command import Measured, measure, measure_elsewhere
from fedvitals.bench.baselines.dataloader_loop import DataLoaderLoop
from fedvitals.bench.baselines.own_engine import OwnEngine
from fedvitals.bench.baselines.plain_loop import PlainLoop
from fedvitals.bench.table import Row, spread
from fedvitals.errors import FedvitalsError
from fedvitals.train.threads import one_thread

CORES = 2
COHORT = 100


class Contestant(NamedTuple):
    name: str
    go: Callable[[str, int], Measured]


class Goal(NamedTuple):
    """How many times faster the first is to be than the second."""

    ours: str
    theirs: str
    times: float


BATCHED = "fedvitals vectorised"
BATCHED_BOTH = f"fedvitals vectorised, {CORES} cores"
OF_PICTURES = (
    Goal(BATCHED, "pfl-research", 2.0),
    Goal(BATCHED_BOTH, f"pfl-research, {CORES} threads", 2.0),
    Goal(BATCHED_BOTH, "Flower simulation", 20.0),
)
GOALS = {
    "tutorial": (Goal(BATCHED, "DataLoader loop", 15.0), Goal(BATCHED_BOTH, "DataLoader loop", 25.0)),
    "digits": (
        Goal(BATCHED, "pfl-research", 20.0),
        Goal(BATCHED_BOTH, "Flower simulation", 100.0),
        Goal(BATCHED, "DataLoader loop", 15.0),
    ),
    "cnn-8x8": OF_PICTURES,
    "cnn-batch10": OF_PICTURES,
    "cnn-batch32": OF_PICTURES,
}
ROUNDS = {"tutorial": 5, "digits": 15, "cnn-8x8": 15, "cnn-batch10": 6, "cnn-batch32": 10}


def run(quick: bool = False) -> list[Row]:
    """Clients per second, accuracy, and the ratios that we promise."""
    repeats = 1 if quick else 3  # enough for ratios of ten and more; starting the frameworks takes most of the time
    rows: list[Row] = []
    with one_thread():
        for problem in ("tutorial", "cnn-batch10") if quick else GOALS:
            rounds = 2 if quick else ROUNDS[problem]
            rows += _problem(problem, rounds, repeats, others=not quick)
    return rows


def _problem(problem: str, rounds: int, repeats: int, *, others: bool) -> list[Row]:
    contestants = [*_ours(problem), *(_theirs() if others else ())]
    results: dict[str, list[Measured]] = {one.name: [] for one in contestants}
    for _ in range(repeats):
        for one in contestants:
            results[one.name].append(one.go(problem, rounds))
    rows = [row for name, measured in results.items() for row in _told(problem, name, measured)]
    return rows + [
        _ratio(problem, goal, results) for goal in GOALS[problem] if goal.ours in results and goal.theirs in results
    ]


def _ours(problem: str) -> Iterator[Contestant]:
    yield _here(DataLoaderLoop())
    yield _here(PlainLoop())
    yield _here(OwnEngine("sequential", 1))
    yield _here(OwnEngine("processes", CORES))
    # Torch does best with a small dense cohort as one chunk; convolutions go as the engine chooses.
    chunk = 0 if problem.startswith("cnn") else COHORT
    yield _here(OwnEngine("vectorised", 1, {"execute.compiled": False, "execute.chunk": chunk}, "vectorised by torch"))
    yield _here(OwnEngine("vectorised", 1))
    yield _here(OwnEngine("vectorised", CORES))


def _here(baseline: DataLoaderLoop | PlainLoop | OwnEngine) -> Contestant:
    return Contestant(baseline.name, lambda problem, rounds: measure(baseline, problem, rounds))


def _theirs() -> Iterator[Contestant]:
    """Frameworks that are not installed are left out, saying so."""
    python = os.environ.get("FEDVITALS_BENCH_PYTHON", sys.executable)
    for name, module, threads in (
        ("pfl-research", "pfl_research", 1),
        (f"pfl-research, {CORES} threads", "pfl_research", CORES),
        ("Flower simulation", "flower_simulation", 1),
    ):
        try:
            measure_elsewhere(python, module, "digits", 1)
        except FedvitalsError as error:
            print(f"{name} is left out: {str(error).splitlines()[-1]}", file=sys.stderr)
            continue
        yield Contestant(name, _elsewhere(python, module, threads))


def _elsewhere(python: str, module: str, threads: int) -> Callable[[str, int], Measured]:
    return lambda problem, rounds: measure_elsewhere(python, module, problem, rounds, threads)


def _told(problem: str, name: str, measured: list[Measured]) -> list[Row]:
    speed, accuracy = spread([one.clients_per_s for one in measured]), spread([one.accuracy for one in measured])
    return [
        Row(problem, f"{name}: clients per second", *speed, "clients/s"),
        Row(problem, f"{name}: accuracy after {measured[0].rounds + 1} rounds", *accuracy, "share"),
    ]


def _ratio(problem: str, goal: Goal, results: dict[str, list[Measured]]) -> Row:
    paired = zip(results[goal.ours], results[goal.theirs], strict=True)
    ratios = [ours.clients_per_s / theirs.clients_per_s for ours, theirs in paired]
    return Row(problem, f"{goal.ours} / {goal.theirs}", *spread(ratios), "times", goal.times)
