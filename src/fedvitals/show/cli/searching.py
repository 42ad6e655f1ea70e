"""The search of `fedvitals optimise`: the job as it is, then ways to train it otherwise, by successive halving.

Every trial is a run in the store. Which there are follows from the job, and what they take from their records: so the
same search later takes what is there, and goes on with what is not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from fedvitals.errors import FedvitalsError
from fedvitals.profile.halving import Standing, kept, rungs
from fedvitals.profile.pareto import Trial
from fedvitals.profile.updates import first_update_size
from fedvitals.settings import Settings
from fedvitals.show.cli.trials import Measured, already, measured, run_apart
from fedvitals.show.optimised import AS_IT_IS
from fedvitals.store import open_store
from fedvitals.train.job import Job
from fedvitals.train.space import Way, changes, space_of, steps_for, ways
from fedvitals.train.target import IN_A_ROW, Target

GROUP = 9  # ways that are halved together


class Budget:
    """Seconds that a search may take; None: as many as it needs."""

    def __init__(self, seconds: float | None) -> None:
        self._until = None if seconds is None else time.monotonic() + seconds

    @property
    def left_s(self) -> float | None:
        return None if self._until is None else max(self._until - time.monotonic(), 0.0)


@dataclass(frozen=True, slots=True)
class Tried:
    """One trial: the job that was run, and where it stands."""

    job: Job
    standing: Standing

    @property
    def trial(self) -> Trial:
        return self.standing.trial


@dataclass(slots=True)
class Found:
    """What a search came to. `others` has each way once, with the most rounds that it was given."""

    own: Tried | None = None  # the job as it is; None: the budget was over before it was done
    others: list[Tried] = field(default_factory=list)
    left_out: tuple[str, ...] = ()  # choices that the job or this installation cannot take, with the reason
    not_tried: list[str] = field(default_factory=list)  # for want of time

    @property
    def reached(self) -> list[Tried]:
        every = [*([] if self.own is None else [self.own]), *self.others]
        return [one for one in every if one.standing.reached]


class Search:
    """One search. `tell` is given a line for each trial."""

    def __init__(
        self, job: Job, target: float, settings: Settings, budget: Budget, tell: Callable[[str], None]
    ) -> None:
        self._job = job
        self._target = target
        self._settings = settings
        self._budget = budget
        self._tell = tell

    def all(self, count: int) -> Found:
        """The job as it is, and up to `count` ways beside it."""
        found, rounds = Found(), self._job.train.rounds
        own = self._planned({})
        seen = self._measured(own, f"[the job as it is] {rounds} rounds")
        if seen is None:
            found.not_tried.append("the job as it is, and every other way")
            return found
        if isinstance(seen, str):
            raise FedvitalsError(f"the job as it is cannot be tried: {seen}")
        found.own = self._standing(own, AS_IT_IS, rounds, seen)
        with closing(open_store(self._settings).open(seen.run_id)) as reader:
            space = space_of(self._job, first_update_size(reader))
        found.left_out = space.left_out
        groups = list(_groups(ways(space, count)))
        for number, group in enumerate(groups, start=1):
            self._halve(found, group, seen, f"group {number}/{len(groups)}")
        return found

    def _halve(self, found: Found, some: list[Way], own: Measured, group: str) -> None:
        """More rounds for fewer and fewer of them."""
        best: dict[Way, Tried] = {}
        rounds = rungs(self._job.train.rounds, IN_A_ROW * self._job.train.evaluate_every)
        for number, each in enumerate(rounds, start=1):
            missed = []
            for place, way in enumerate(some, start=1):
                if way in best and best[way].standing.reached:
                    continue  # more rounds would not be used
                tried = self._tried(way, each, f"[{group}, rung {number}/{len(rounds)}: {place}/{len(some)}]")
                if tried is not None:
                    best[way] = tried
                else:
                    missed.append(f"{_words(changes(self._job, way))}, {each} rounds")
            found.not_tried += missed
            if missed:
                break  # the better half of those that are known is not the better half
            places = kept([best[way].standing for way in some], own.curve, self._job.train.rounds)
            some = [some[place] for place in sorted(places)]
        found.others += best.values()

    def _tried(self, way: Way, rounds: int, label: str) -> Tried | None:
        """None where there is no time left for it."""
        changed = changes(self._job, way)
        steps, every = steps_for(self._job, way, rounds)
        job = self._planned({**changed, "train.rounds": steps, "train.evaluate_every": every})
        values = tuple((key, str(value)) for key, value in changed.items())
        seen = self._measured(job, f"{label} {_words(changed)}, {steps} rounds")
        if isinstance(seen, str):
            return Tried(job, Standing(Trial(values, (), None, None, None, None, None, seen), rounds, False))
        return None if seen is None else self._standing(job, values, rounds, seen)

    def _planned(self, changed: dict[str, Any]) -> Job:
        name = f"{self._job.name}-optimise"[:70]
        return self._job.replaced({**changed, "name": name, "train.stop_at": self._target}, source="a trial")

    def _measured(self, job: Job, label: str) -> Measured | str | None:
        """What a run of this job took, or why there is none; None where there is no time for one."""
        known = already(job, self._settings)
        left_s = self._budget.left_s
        if known is None and left_s == 0.0:
            return None
        self._tell(label + (" (there already)" if known else ""))
        try:
            return measured(known or run_apart(job, self._settings, left_s), self._settings)
        except TimeoutError:
            self._tell("  ended: the budget is over")
            return None
        except FedvitalsError as error:
            self._tell(f"  {error}")
            return str(error)

    def _standing(self, job: Job, values: tuple[tuple[str, str], ...], rounds: int, seen: Measured) -> Tried:
        target = Target.of(job)
        reached = any(target.held(accuracy, done) for done, accuracy in seen.curve)
        trial = Trial(values, (seen.run_id,), *seen.numbers)
        return Tried(job, Standing(trial, rounds, reached))


def as_file(job: Job, tried: Tried) -> Job:
    """The job of a trial under the name of the job that was searched."""
    return replace(tried.job, name=job.name)


def _groups(some: list[Way]) -> Iterator[list[Way]]:
    """Halved one after the other: a search whose time is over early has gone all the way with some of them."""
    for first in range(0, len(some), GROUP):
        yield some[first : first + GROUP]


def _words(changed: dict[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in changed.items())
