"""The codec bench: everything together, as rows."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from fedvitals.bench.codecs import page, wire
from fedvitals.bench.codecs.cases import LESS, PROBLEMS, Problem, ways
from fedvitals.bench.codecs.racing import Race, race
from fedvitals.bench.codecs.results import USUAL, Results
from fedvitals.bench.faults.problems import FOLDER_VARIABLE
from fedvitals.bench.table import Row, spread
from fedvitals.errors import FedvitalsError
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


def run(
    quick: bool = False,
    data: str | None = None,
    write: str | None = None,
    results: str | None = None,
    minutes: float = math.inf,
    only: str | None = None,
) -> list[Row]:
    """Messages of a million values, and trainings; without a folder of data sets only what comes with the package.

    Trainings that are in the file of results are not run again; after so many minutes no more are begun. With `only`
    one problem is raced, and a page that is written keeps what it says of everything else.
    """
    torch.set_num_threads(1)
    if data is not None:
        os.environ[FOLDER_VARIABLE] = data
    asked = _asked(only, quick)
    rows = page.before(Path(write)) if only is not None and write is not None else []
    if only is None:
        rows = list(wire.rows(2 if quick else 7))
    until = time.monotonic() + 60 * minutes
    raced = list(_quick() if quick else _raced(asked, Results(Path(results or USUAL)), until))
    again = {one.problem for one in raced}  # what there was no time for stays as well
    rows = [row for row in rows if row.case.partition(",")[0] not in again]
    rows += [row for problem in dict.fromkeys(one.problem for one in raced) for row in _judged(problem, raced)]
    if write is not None:
        page.write(Path(write), raced, rows)
    return rows


def _asked(only: str | None, quick: bool) -> tuple[Problem, ...]:
    """The problems to race."""
    if only is None:
        return PROBLEMS
    found = tuple(problem for problem in PROBLEMS if problem.name == only)
    names = ", ".join(problem.name for problem in PROBLEMS)
    why = found[0].missing if found else f"there is no such problem; right is one of {names}"
    if why or quick:
        raise FedvitalsError(f"bench codecs --only {only}: {why or 'not with --quick, which races digits alone'}")
    return found


def _quick() -> Iterator[Raced]:
    job = PROBLEMS[0].job(PROBLEMS[0].seeds[0]).replaced({"train.rounds": QUICK})
    plain, *others = ways(PROBLEMS[0])
    first = race(job, plain)
    target = first.accuracy[-1] - LESS
    yield Raced(PROBLEMS[0].name, target, {plain.name: first} | {way.name: race(job, way, target) for way in others})


def _raced(problems: Sequence[Problem], results: Results, until: float) -> Iterator[Raced]:
    """What matters most for all seeds first; then seeds of which two ways at least are there."""
    there = [problem for problem in problems if not problem.missing]
    for problem in problems:
        if problem.missing:
            say(f"codecs: without {problem.name}: {problem.missing}")
    for many in range(2, 1 + len(ways(PROBLEMS[0]))):
        found = [_one(problem, seed, results, until, many) for problem in there for seed in problem.seeds]
    yield from (one for one in found if len(one.races) > 1)


def _one(problem: Problem, seed: int, results: Results, until: float, many: int) -> Raced:
    """So many of the ways, as far as there is time for them."""
    races: dict[str, Race] = {}
    target = 0.0
    for way in ways(problem)[:many]:
        known = results.find(problem, seed, way)
        if known is None:
            if time.monotonic() >= until:
                break
            known = race(problem.job(seed), way, target)
            results.keep(problem, seed, way, known)
            say(f"codecs: {problem.name}, seed {seed}, {way.name}: best accuracy {max(known.accuracy):.4f}")
        races[way.name] = known
        target = races[page.PLAIN].accuracy[-1] - LESS
    return Raced(problem.name, target, races)


def _judged(problem: str, raced: Sequence[Raced]) -> Iterator[Row]:
    every = [one for one in raced if one.problem == problem]
    yield Row(problem, page.TARGET, *spread([one.target for one in every]), "")
    for way in every[0].races:
        own = [one for one in every if way in one.races]
        case = f"{problem}, {way}"
        best = [max(one.races[way].accuracy) for one in own]
        yield Row(case, "best accuracy", *spread(best), "")
        if way == page.PLAIN:
            continue
        goal = FEWER if way == page.OURS else None
        yield Row(case, "times fewer bytes to the accuracy", *spread([one.fewer(way) for one in own]), "x", goal)
        reached = [one.races[way].reached(one.target) for one in own]
        count = float(sum(number is not None for number in reached))
        yield Row(case, page.REACHED, count, count, count, f"of {len(own)}")
        rounds = [number + 1 for number in reached if number is not None]
        if rounds:
            yield Row(case, "rounds to the accuracy", *spread(rounds), "")
