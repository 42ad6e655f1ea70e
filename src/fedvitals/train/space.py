"""The ways in which a job could be trained otherwise: its codecs, cohort, local epochs, batch and mode.

A pure function of the job and of the size of its updates, so that a search that was cut off finds the same ways again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from operator import attrgetter
from typing import Any

from fedvitals.errors import FedvitalsError
from fedvitals.randomness import stream
from fedvitals.train.job import Job

CODECS = (  # as all below, what promises most comes first
    "feedback(topk:0.05 | quantize:8 | entropy)",
    "feedback(ternary:0.02 | entropy)",
    "quantize:8",
    "fp16",
    "identity",
)
GRID = "feedback(grid:{step:g} | entropy)"
# Steps of a grid in units of an update's root mean square: near those that `bench codecs` has for digits and pictures
# of clothes, which were chosen by hand. A step of the server is of many clients, and bears twice as much.
UP_STEPS, DOWN_STEPS = 5.0, 10.0
COHORTS = (2.0, 0.5)
EPOCHS = (4.0, 2.0, 0.5)
BATCHES = (0.5, 2.0)
KEYS = {
    "up": "codec.up",
    "down": "codec.down",
    "cohort": "times as many clients",
    "epochs": "train.epochs",
    "batch_size": "train.batch_size",
    "mode": "server.mode",
}
ONES = ("cohort", "epochs", "batch_size", "mode")  # that change by themselves; codecs do so both ways
KEPT = 0.5  # chance that a combination leaves one thing as the job has it
PAIRED = 0.5  # that its codecs are the same both ways
MOST_DRAWS = 100  # a way that is asked for, before there are taken to be no others


@dataclass(frozen=True, slots=True)
class Way:
    """One way to train the job."""

    up: str
    down: str
    cohort: float  # times as many clients
    epochs: int
    batch_size: int
    mode: str


@dataclass(frozen=True, slots=True)
class Space:
    """What can be chosen for each field of a `Way`, beside what the job has; and what is not tried, with the reason."""

    job: Job
    choices: Mapping[str, tuple[Any, ...]]
    codecs: tuple[tuple[str, str], ...]  # that belong together, up and down
    left_out: tuple[str, ...]

    @property
    def own(self) -> Way:
        return own_way(self.job)


def own_way(job: Job) -> Way:
    """The job as it is."""
    return Way(job.codec.up, job.codec.down, 1.0, job.train.epochs, job.train.batch_size, job.server.mode)


def space_of(job: Job, update_size: float | None) -> Space:
    """`update_size` is the root mean square of the first updates' values; None where it is not known."""
    own, codecs = own_way(job), _codecs(update_size)
    choices: dict[str, tuple[Any, ...]] = {}
    reasons: dict[str, list[str]] = {}
    for name, values in _offered(job, codecs).items():
        others = [value for value in dict.fromkeys(values) if value != getattr(own, name)]
        refused = {value: _refused(job, replace(own, **{name: value})) for value in others}
        choices[name] = tuple(value for value, reason in refused.items() if reason is None)
        for value, reason in refused.items():
            if reason is not None:
                reasons.setdefault(reason, []).append(f"{KEYS[name]} = {value}")
    left_out = [f"{', '.join(values)}: {reason}" for reason, values in reasons.items()]
    if update_size is None:
        left_out.append("codec.up and codec.down = grid: no update has a size from which a step could be taken")
    return Space(job, choices, codecs, tuple(left_out))


def _codecs(update_size: float | None) -> tuple[tuple[str, str], ...]:
    pairs = tuple((one, one) for one in CODECS)
    if update_size is None:
        return pairs
    up, down = (GRID.format(step=float(f"{steps * update_size:.0e}")) for steps in (UP_STEPS, DOWN_STEPS))
    return ((up, down), *pairs)


def _offered(job: Job, codecs: Sequence[tuple[str, str]]) -> dict[str, Sequence[Any]]:
    return {
        "up": [up for up, _ in codecs],
        "down": [down for _, down in codecs],
        "cohort": _different_cohorts(job),
        "epochs": [max(1, round(job.train.epochs * times)) for times in EPOCHS],
        "batch_size": [max(1, round(job.train.batch_size * times)) for times in BATCHES],
        "mode": ("sync", "async"),
    }


def _different_cohorts(job: Job) -> list[float]:
    """Those that come to another number of clients than the job has: there may be no more of them."""
    own = own_way(job)
    return [times for times in COHORTS if _clients(job, replace(own, cohort=times)) != _clients(job, own)]


def _refused(job: Job, way: Way) -> str | None:
    """Why this way cannot be tried."""
    from fedvitals.codecs import parse, share_of

    try:
        changed = job.replaced(changes(job, way), source="the job")
        parse(way.down)
        up = parse(way.up)
        if changed.codec.adapt:
            share_of(up)
    except FedvitalsError as error:
        return str(error)
    becomes_async = way.mode == "async" and job.server.mode == "sync"
    if becomes_async and job.execute.clock == "real" and job.execute.executor != "processes":
        return 'on the real clock it needs execute.executor = "processes"'
    return None


def changes(job: Job, way: Way) -> dict[str, Any]:
    """The keys of the job that make it go this way; those that stay as they are are left out."""
    said: dict[str, Any] = {
        "codec.up": way.up,
        "codec.down": way.down,
        "train.epochs": way.epochs,
        "train.batch_size": way.batch_size,
        "server.mode": way.mode,
    }
    said |= _clients(job, way)
    return {key: value for key, value in said.items() if attrgetter(key)(job) != value}


def _clients(job: Job, way: Way) -> dict[str, int]:
    """A job in rounds goes without them with as many clients at work as a round had, and a step for half of them."""
    there = job.data.clients - len(job.train.exclude) if job.data.clients else math.inf
    needed = max(1, round(job.train.clients_per_round * way.cohort))
    if way.mode == "sync":
        return {"train.clients_per_round": int(min(needed, max(there, 1)))}
    if job.server.mode == "sync":
        at_work = int(min(needed, there))
        return {"server.concurrency": at_work, "server.buffer": max(1, at_work // 2)}
    at_work = max(1, round(job.server.concurrency * way.cohort))
    return {"server.concurrency": at_work, "server.buffer": int(min(max(1, job.server.buffer * way.cohort), there))}


def steps_for(job: Job, way: Way, rounds: int) -> tuple[int, int]:
    """`train.rounds` and `train.evaluate_every` for as many updates as so many of the job's rounds take."""
    every = job.train.evaluate_every
    if way.mode == job.server.mode or way.mode == "sync":
        return rounds, every
    clients = _clients(job, way)
    times = clients["server.concurrency"] / clients["server.buffer"]
    return math.ceil(rounds * times), math.ceil(every * times)


def ways(space: Space, count: int) -> list[Way]:
    """Others than the job's own: each choice by itself, codecs both ways, in turn with seeded combinations; each once.
    Asking for more gives the same ones and some further."""
    found: list[Way] = []
    known: list[dict[str, Any]] = [{}]  # what the job itself changes
    sources = [_one_by_one(space), _combinations(space, MOST_DRAWS * count)]
    while sources and len(found) < count:
        source = sources.pop(0)
        for way in source:
            changed = changes(space.job, way)
            if changed not in known and _refused(space.job, way) is None:
                known.append(changed)
                found.append(way)
                sources.append(source)  # the other one first
                break
    return found


def _one_by_one(space: Space) -> Iterator[Way]:
    """The first of each kind, then the second of each, and so on."""
    coded = [_coded(space, pair) for pair in space.codecs]
    kinds = [[replace(space.own, **{name: value}) for value in space.choices[name]] for name in ONES]
    for some in zip_longest(coded, *kinds):
        yield from (way for way in some if way is not None)


def _coded(space: Space, pair: tuple[str, str]) -> Way:
    """The job with these codecs, as far as it takes them."""
    own, (up, down) = space.own, pair
    return replace(
        own,
        up=up if up in space.choices["up"] else own.up,
        down=down if down in space.choices["down"] else own.down,
    )


def _combinations(space: Space, draws: int) -> Iterator[Way]:
    """Half of them with codecs that belong together: what is saved one way alone at most halves the bytes."""
    random = stream(space.job.seed, "ways to optimise")
    for _ in range(draws):
        changed = {}
        for name, values in space.choices.items():
            if random.random() >= KEPT and values:
                changed[name] = values[int(random.integers(len(values)))]
        if random.random() < PAIRED:
            coded = _coded(space, space.codecs[int(random.integers(len(space.codecs)))])
            changed |= {"up": coded.up, "down": coded.down}
        yield replace(space.own, **changed)
