"""The codec bench: everything together, as rows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from fedvitals.bench.codecs import page, wire
from fedvitals.bench.codecs.cases import LESS, PROBLEMS, SEEDS, Problem, ways
from fedvitals.bench.codecs.racing import Race, race
from fedvitals.bench.faults.problems import FOLDER_VARIABLE
from fedvitals.bench.table import Row, spread
from fedvitals.show.cli.terminal import say

FEWER = 100.0
QUICK = 12  # rounds, and one seed: enough to see that it works


@dataclass(frozen=True, slots=True)
class Raced:
    """All ways on one problem with one seed."""

    problem: str
    target: float
    races: dict[str, Race] = field(default_factory=dict)

    def fewer(self, way: str) -> float:
        """Times fewer bytes than without compression; 0 where the target was never held."""
        reached = self.races[way].reached(self.target)
        whole = self.races[page.PLAIN].bytes[-1]
        return 0.0 if reached is None else whole / self.races[way].bytes[reached]


def run(quick: bool = False, data: str | None = None, write: str | None = None) -> list[Row]:
    """Messages of a million values, and trainings; without a folder of data sets only what comes with the package."""
    torch.set_num_threads(1)
    if data is not None:
        os.environ[FOLDER_VARIABLE] = data
    rows = list(wire.rows(2 if quick else 7))
    raced = list(_raced(quick))
    rows += [row for problem in dict.fromkeys(one.problem for one in raced) for row in _judged(problem, raced)]
    if write is not None:
        page.write(Path(write), raced, rows)
    return rows


def _raced(quick: bool) -> Iterator[Raced]:
    for problem in PROBLEMS[:1] if quick else PROBLEMS:
        if problem.missing:
            say(f"codecs: without {problem.name}: {problem.missing}")
            continue
        for seed in range(1 if quick else SEEDS):
            yield _one(problem, seed, quick)


def _one(problem: Problem, seed: int, quick: bool) -> Raced:
    job = problem.job(seed)
    if quick:
        job = job.replaced({"train.rounds": QUICK})
    plain, *others = ways(problem)
    first = race(job, plain)
    found = Raced(problem.name, first.accuracy[-1] - LESS, {plain.name: first})
    for way in others:
        found.races[way.name] = race(job, way, found.target)
        say(f"codecs: {problem.name}, seed {seed}, {way.name}: {found.fewer(way.name):.0f} times fewer bytes")
    return found


def _judged(problem: str, raced: Sequence[Raced]) -> Iterator[Row]:
    own = [one for one in raced if one.problem == problem]
    yield Row(problem, "accuracy to reach", *spread([one.target for one in own]), "")
    for way in own[0].races:
        case = f"{problem}, {way}"
        best = [max(one.races[way].accuracy) for one in own]
        yield Row(case, "best accuracy", *spread(best), "")
        if way == page.PLAIN:
            continue
        goal = FEWER if way == page.OURS else None
        yield Row(case, "times fewer bytes to the accuracy", *spread([one.fewer(way) for one in own]), "x", goal)
        reached = [one.races[way].reached(one.target) for one in own]
        count = float(sum(number is not None for number in reached))
        yield Row(case, "seeds that reached it", count, count, count, f"of {len(own)}")
        rounds = [number + 1 for number in reached if number is not None]
        if rounds:
            yield Row(case, "rounds to the accuracy", *spread(rounds), "")
