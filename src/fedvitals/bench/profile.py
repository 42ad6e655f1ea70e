"""Does a profile name what really holds a run up, does it explain the time, and how fast does it open?

A hundred runs with something slow in them (or leaking), and a hundred even ones, by the engine: on the virtual clock,
and on this machine's with all its noise. Beside that, what stays unexplained, and a profile of 1,000 clients x 200
rounds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

from fedvitals.bench.diagnosis import made_up_run
from fedvitals.bench.table import Row, spread
from fedvitals.diagnose import diagnose
from fedvitals.profile.profile import Profile, profile_of
from fedvitals.settings import Settings
from fedvitals.store import SQLiteStore, open_store
from fedvitals.train.engine import train
from fedvitals.train.job import Job

PHASE = {"slow-compute": "train", "slow-link": "upload", "slow-loader": "load", "slow-aggregation": "aggregate"}
LEAK = "memory-leak"  # is told by the finding about memory that grows
GROWTH = "FL801"
WAYS: tuple[dict[str, Any], ...] = (
    {"executor": "sequential", "clock": "virtual"},
    {"executor": "sequential"},
    {"executor": "processes", "workers": 2},
    {"executor": "vectorised"},
)
PARTITIONS = ("iid", "dirichlet")
OPENS_S = 5.0


@dataclass(frozen=True, slots=True)
class Case:
    """One run; `fault` None: nothing is wrong."""

    number: int
    way: dict[str, Any]
    partition: str
    fault: str | None

    @property
    def clock(self) -> str:
        return str(self.way.get("clock", "real"))

    def job(self) -> Job:
        client = self.number % 12
        struck: dict[str, Any] = {"kind": self.fault, "from_round": 3}
        if self.fault != "slow-aggregation":
            struck["clients"] = [client]
        return Job.from_dict(
            {
                "name": "bottleneck",
                "seed": 2 * self.number,
                "data": {"source": "digits", "clients": 12, "partition": self.partition, "alpha": 0.5},
                "train": {"rounds": 20, "clients_per_round": 12},
                "execute": self.way,
                "faults": [struck] if self.fault is not None else [],
            }
        )


def run(quick: bool = False) -> list[Row]:
    """Shares of runs that were judged rightly, of time that stays unexplained, and seconds to open."""
    count = 10 if quick else 100
    faulty = [_judged(case) for case in _cases([*PHASE, LEAK], count)]
    even = [_judged(case) for case in _cases([None], count)]
    return [
        *_found(faulty, quick),
        *_accused(even, quick),
        *_unexplained([*faulty, *even]),
        *_opening(quick),
    ]


def _cases(faults: Sequence[str | None], count: int) -> Iterator[Case]:
    """Every fault on every way, in turn, each with its own seed and client."""
    combinations = [(way, fault) for way in WAYS for fault in faults]
    for number, (way, fault) in enumerate(islice(cycle(combinations), count)):
        yield Case(number, way, PARTITIONS[number // len(combinations) % 2], fault)


@dataclass(frozen=True, slots=True)
class Judged:
    case: Case
    right: bool  # the phase, or that memory grows
    client_right: bool | None  # None: the fault has no client of its own
    accused: str | None
    unexplained: float
    grows: bool = False  # memory is said to


def _judged(case: Case) -> Judged:
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(dir=folder)
        train(case.job(), settings=settings)
        with closing(open_store(settings).open("last")) as reader:
            profile = profile_of(reader)
            grows = bool(diagnose(reader, select=[GROWTH]).findings)
    found = profile.bottleneck
    accused = found.client if found is not None else None
    if case.fault == LEAK:
        return Judged(case, grows, None, accused, profile.unexplained_ratio, grows)
    right = case.fault is not None and found is not None and found.phase == PHASE[case.fault]
    own = str(case.number % 12)
    client_right = None if case.fault in (None, "slow-aggregation") else accused == own
    return Judged(case, right, client_right, accused, profile.unexplained_ratio, grows)


def _found(faulty: Sequence[Judged], quick: bool) -> list[Row]:
    rows = []
    for fault in (*PHASE, LEAK):
        some = [one for one in faulty if one.case.fault == fault]
        rows.append(_share(f"{fault} ({len(some)} runs)", "right bottleneck", [one.right for one in some], None))
    named = [one.client_right for one in faulty if one.client_right is not None]
    goal = None if quick else 0.95
    rows.append(_share(f"all ({len(faulty)} runs)", "right bottleneck", [one.right for one in faulty], goal))
    rows.append(_share(f"with a client ({len(named)} runs)", "right client", named, goal))
    return rows


def _accused(even: Sequence[Judged], quick: bool) -> list[Row]:
    case, goal = f"even ({len(even)} runs)", None if quick else 0.0
    return [
        _share(case, "a client named", [one.accused is not None for one in even], goal, at_least=False),
        _share(case, "memory said to grow", [one.grows for one in even], goal, at_least=False),
    ]


def _share(case: str, measure: str, right: Sequence[bool], goal: float | None, *, at_least: bool = True) -> Row:
    share = sum(right) / max(len(right), 1)
    return Row(case, measure, share, share, share, "share", goal, at_least=at_least)


def _unexplained(judged: Sequence[Judged]) -> list[Row]:
    """Runs of a second or less: what is between two phases counts most there."""
    rows = []
    for way in WAYS:
        some = [one.unexplained for one in judged if one.case.way == way]
        name = f"{way['executor']}, {way.get('clock', 'real')} clock"
        rows.append(Row(name, "unexplained", *spread(some), "share", 0.03, at_least=False))
    return rows


def _opening(quick: bool) -> list[Row]:
    clients, rounds, repeats = (50, 20, 1) if quick else (1000, 200, 3)
    with made_up_run(clients, rounds) as store:
        took = [_opened(store) for _ in range(repeats)]
        told = [_told(store) for _ in range(repeats)]
    case, goal = f"{clients:,} clients x {rounds} rounds", None if quick else OPENS_S
    return [
        Row(case, "profile", *spread(took), "s", goal, at_least=False),
        Row(case, "`fedvitals profile`, what-if and all", *spread(told), "s", goal, at_least=False),
    ]


def _told(store: SQLiteStore) -> float:
    """The command as it is typed, from the start of its process to its end."""
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "fedvitals", "profile", "last"],
        env=os.environ | {"FEDVITALS_DIR": str(store.root)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return time.perf_counter() - began


def _opened(store: SQLiteStore) -> float:
    with closing(store.open("last")) as reader:
        began = time.perf_counter()
        profile: Profile = profile_of(reader)
        took = time.perf_counter() - began
    assert profile.wall_s > 0
    return took
