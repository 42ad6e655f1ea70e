"""One cell of the fault bench: a training with one fault, or none, and what is known of it.

`played(cell)` trains it in a store that is thrown away and gives back the chart of the run and the truth about it: a
second or less for a small model, so a scorer can be fitted and judged on many of them in one process.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from fedvitals.bench.charted import charted
from fedvitals.bench.faults.problems import PROBLEMS
from fedvitals.bench.faults.truth import truth_of
from fedvitals.diagnose.chart import Chart
from fedvitals.faults.registry import BY_KIND
from fedvitals.randomness import stream
from fedvitals.settings import Settings
from fedvitals.train.engine import Training
from fedvitals.train.hooks import RoundHook
from fedvitals.train.job import Job
from fedvitals.train.threads import one_thread

CLEAN = "none"
PARTITIONS = ("iid", "dirichlet-1.0", "dirichlet-0.3", "dirichlet-0.1", "natural")
BAD = ("1", "3", "20%")
ROUNDS = {1.0: 20, 0.5: 30}  # of those who take half of the clients, a few more: equal work, ten participations and up
OTHER_STRENGTHS = {"third": 1 / 3, "noisy": 0.01}  # beside the default and half of it
ON_VIRTUAL_CLOCK = frozenset({"timeout", "slow-compute", "slow-link", "slow-loader", "slow-aggregation"})


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """Where in the design a run stands. `strength` is a word: `default`, `half` of it, a `third` of the classes,
    or `noisy` for a copy with a little noise."""

    problem: str = "digits"
    partition: str = "iid"
    clients: int = 10
    share: float = 1.0  # of the clients, chosen each round
    fault: str = CLEAN
    strength: str = "default"
    bad: str = "0"  # how many clients: "0", "1", "3" or "20%"
    from_round: int = 0
    seed: int = 0

    @property
    def key(self) -> str:
        """One word for each, in order: the name under which its result is kept."""
        return "/".join(str(value) for value in asdict(self).values())

    @staticmethod
    def from_key(key: str) -> Cell:
        """The cell of that name."""
        problem, partition, clients, share, fault, strength, bad, begins, seed = key.split("/")
        return Cell(problem, partition, int(clients), float(share), fault, strength, bad, int(begins), int(seed))

    @property
    def clean(self) -> bool:
        return self.fault == CLEAN

    @property
    def reserved(self) -> bool:
        """Never looked at while a rule is developed."""
        return PROBLEMS[self.problem].reserved or self.seed % 2 == 1

    @property
    def rounds(self) -> int:
        return ROUNDS[self.share]

    def strength_value(self) -> float | None:
        """In the fault's own measure; None: its default."""
        usual = None if self.clean else BY_KIND[self.fault].default_strength
        if self.strength == "default" or usual is None:
            return None
        value = OTHER_STRENGTHS.get(self.strength, usual / 2)
        return float(round(value)) if BY_KIND[self.fault].whole else value

    def bad_clients(self) -> tuple[str, ...]:
        """Whom the fault strikes: drawn from the seed, so that no id is always the guilty one."""
        if self.clean or BY_KIND[self.fault].on_server:
            return ()
        count = round(0.2 * self.clients) if self.bad == "20%" else int(self.bad)
        order = stream(self.seed, "bench bad clients", self.fault, self.problem).permutation(self.clients)
        return tuple(sorted((str(index) for index in order[:count].tolist()), key=int))


@dataclass(frozen=True, slots=True, eq=False)
class Played:
    """A cell's run as a doctor sees it, and the truth that a doctor does not see."""

    cell: Cell
    chart: Chart
    bad: frozenset[str]  # clients whose fault struck at least once and changed something
    kind: str  # of the fault; `none`
    expected: str  # code of the finding it should give; "" for none
    from_round: int
    struck: Mapping[str, tuple[int, ...]]  # bad client -> the rounds in which it was struck
    hit: Mapping[str, float] = field(default_factory=dict)  # bad client -> share of its rows that is spoilt
    layers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # bad client -> where it is, if it is somewhere
    steps: Mapping[str, int] = field(default_factory=dict)  # bad client -> its first bad step, if there is one
    wall_s: float = 0.0
    accuracy: float | None = None  # of the last global model
    stopped: str = ""  # why the training could not go on to its end


def job_of(cell: Cell) -> Job:
    """The job of a cell: all that differs between two cells stands in it."""
    problem = PROBLEMS[cell.problem]
    partition, _, alpha = cell.partition.partition("-")
    source = f"fedvitals.bench.faults.problems:{problem.name}_{cell.seed}" if problem.file else problem.name
    data = {"source": source, "partition": partition, "clients": cell.clients, "min_rows": 8, **problem.data}
    if alpha:
        data["alpha"] = float(alpha)
    train = {
        "rounds": cell.rounds,
        "clients_per_round": max(1, round(cell.share * cell.clients)),
        **problem.train,
    }
    return Job.from_dict(
        {
            "name": f"{cell.problem}-{cell.fault}",
            "seed": cell.seed,
            "data": data,
            "model": problem.model,
            "train": train,
            "execute": {"workers": 1, "clock": "virtual" if cell.fault in ON_VIRTUAL_CLOCK else "real"},
            "observe": {"keep_models": False},
            "faults": _faults(cell),
        },
        source=cell.key,
    )


def _faults(cell: Cell) -> list[dict[str, Any]]:
    if cell.clean:
        return []
    fault: dict[str, Any] = {"kind": cell.fault, "from_round": cell.from_round}
    strength = cell.strength_value()
    if strength is not None:
        fault["strength"] = strength
    if cell.bad_clients():
        fault["clients"] = list(cell.bad_clients())
    return [fault]


def played(cell: Cell, watching: Callable[[Training], RoundHook] | None = None) -> Played:
    """Train this cell and chart it. A training that cannot go on is charted as far as it came. `watching` makes a hook
    that sees the updates of every round, for detectors that need more than a chart."""
    with one_thread(), tempfile.TemporaryDirectory(prefix="fedvitals-bench-") as folder:
        return _played(cell, watching, Settings(dir=folder))


def prepared(cell: Cell) -> Training:
    """The cell's training before its first round, for who wants to look at its model or its rows."""
    return Training.prepare(job_of(cell))


def _played(cell: Cell, watching: Callable[[Training], RoundHook] | None, settings: Settings) -> Played:
    began = time.perf_counter()
    training = prepared(cell)
    chart, accuracy, stopped = charted(training, settings, watching(training) if watching else None)
    truth = truth_of(training, chart)
    return Played(
        cell=cell,
        chart=chart,
        bad=frozenset(truth.struck),
        kind=cell.fault,
        expected="" if cell.clean else BY_KIND[cell.fault].finding,
        from_round=cell.from_round,
        struck=truth.struck,
        hit=truth.hit,
        layers=truth.layers,
        steps=truth.steps,
        wall_s=time.perf_counter() - began,
        accuracy=accuracy,
        stopped=stopped,
    )
