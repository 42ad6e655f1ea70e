"""The ways to train, compared seed by seed: how much sooner each reaches what synchronous rounds come to."""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedvitals.bench.asynchrony.cases import (
    FEDBUFF,
    FULL,
    MEMORY_PISCES,
    OORT,
    QUICK,
    RANDOM,
    SYNCHRONOUS,
    WAYS,
    WITHOUT_ROUNDS,
    Size,
    Way,
    job,
    write_devices,
)
from fedvitals.bench.asynchrony.racing import Race, raced
from fedvitals.bench.table import Row, spread

SEEDS = (21, 22, 23, 24, 25)  # 1 to 5 were looked at when the ways were set up, 11 to 15 with an earlier job
SHARE = 0.95  # of the synchronous final accuracy: the target
ALL = "all ways"
GOALS = {OORT.name: 1.5, FEDBUFF.name: 3.0, MEMORY_PISCES.name: 3.0}  # of strict ways, the best on seeds 2 and 3


@dataclass(frozen=True, slots=True)
class Compared:
    """One seed: each way at its best."""

    target: float
    races: dict[str, Race]
    deadlines_s: dict[str, float]  # of the synchronous ways

    def reached_s(self, way: str) -> float:
        return self.races[way].reached_s(self.target)

    def ratio(self, way: str) -> float:
        """How many times sooner than random selection in rounds, which at worst ends with its target; 0 for never."""
        took = self.reached_s(way)
        return self.until_s(RANDOM.name) / took if math.isfinite(took) else 0.0

    def until_s(self, way: str) -> float:
        """When it reached the target, or ended without."""
        return min(self.reached_s(way), self.races[way].times_s[-1])


def run(quick: bool = False, write: str | None = None) -> list[Row]:
    """`write` names the folder of documentation whose page and picture are made anew."""
    size, seeds = (QUICK, SEEDS[:1]) if quick else (FULL, SEEDS)
    found = [compared(size, seed) for seed in seeds]
    rows = list(_rows(found))
    if write is not None:
        from fedvitals.bench.asynchrony.page import write as write_page

        for path in write_page(Path(write), found, rows):
            print(f"written: {path}", file=sys.stderr)
    return rows


def compared(size: Size, seed: int) -> Compared:
    """All ways over the same clients, rows and devices."""
    print(f"seed {seed} ...", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "devices.csv"
        delays_s = write_devices(path, size, seed)

        def race(way: Way, deadline_s: float = 0.0) -> Race:
            return raced(job(size, seed, str(path), way, deadline_s), delays_s)

        rounds = {way.name: {s: race(way, s) for s in size.deadlines_s} for way in SYNCHRONOUS}
        others = {way.name: race(way) for way in WITHOUT_ROUNDS}
    target = SHARE * max(one.final for one in rounds[RANDOM.name].values())
    best = {name: min(tried, key=lambda s: (tried[s].reached_s(target), s)) for name, tried in rounds.items()}
    races = {name: rounds[name][s] for name, s in best.items()} | others
    return Compared(target, races, best)


def _rows(found: Sequence[Compared]) -> Iterator[Row]:
    for way in WAYS:
        if way is not RANDOM:
            ratios = spread([one.ratio(way.name) for one in found])
            yield Row(way.name, "times sooner at the target", *ratios, "x", GOALS.get(way.name))
        times = [one.until_s(way.name) for one in found]
        yield Row(way.name, "time to the target", *spread(times), "s")
        yield Row(way.name, "final accuracy", *spread([one.races[way.name].final for one in found]), "share")
        slowest = [one.races[way.name].slowest for one in found]
        yield Row(way.name, "accuracy on the slowest tenth of the clients", *spread(slowest), "share")
        if not way.buffer:
            yield Row(way.name, "best deadline of five", *spread([one.deadlines_s[way.name] for one in found]), "s")
    yield Row(ALL, "target accuracy", *spread([one.target for one in found]), "share")
