"""A played cell -> what was found in it, by our rules and by the others, round by round: one line of results.

Our rules look at the run as it was after each round (`Chart.until`), so a client's finding has a round: how many of its
struck participations it took. A client counts as found when a warning or graver finding, certain or accused, names it;
suspicions are counted apart. What is folded under another finding as its symptom accuses nobody, nor does what tells
whose data differs from the others'. A finding of duplicates names pairs, of whom one is the copied: where a bad
client is among them, the others are not counted as falsely accused.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fedvitals.bench.faults.cells import Cell, Played, played
from fedvitals.bench.faults.detectors import tutorials
from fedvitals.bench.faults.detectors.watching import Watching
from fedvitals.diagnose.diagnosis import examine
from fedvitals.diagnose.registry import RULES
from fedvitals.diagnose.rule import Rule
from fedvitals.train.engine import Training
from fedvitals.train.threads import one_thread
from fedvitals.vocabulary import Finding, Grade, Severity

OURS = "fedvitals"
SUSPECTS = "fedvitals, suspects too"
PAIRS = "FL606"
LEAK, GROWTH = "memory-leak", "FL801"  # the other detectors keep every update: memory grows in each of these runs
DESCRIBING = frozenset({"FL501", "FL502", "FL503", "FL504", "FL505"})  # tell whose data differs, or who suffers by it
ACCUSED, SUSPECTED = "accused", "suspected"
Score = list[int]  # right, of how many
STEP_KEYS = ("step", "bad_step", "first_bad_step")


@dataclass(frozen=True, slots=True)
class Named:
    """What one way of looking says: whom it names at the end, and after which round it first named each."""

    end: tuple[str, ...] = ()
    first: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Line:
    """The result of one cell, as it is kept: everything a table needs, and nothing of the run itself."""

    cell: Cell
    version: str  # of the rules that looked
    struck: dict[str, list[int]]  # bad client -> rounds in which it was struck
    hit: dict[str, float]
    named: dict[str, Named]  # way of looking -> what it says
    accusing: dict[str, list[str]]  # code -> clients that it accuses at the end; [] for a finding about the run
    suspecting: dict[str, list[str]]
    layer: Score | None = None  # findings that name the right layer, of how many; None where there is none to name
    step: Score | None = None  # and the right step
    wall_s: float = 0.0
    looking_s: float = 0.0  # what our rules took, over all rounds
    cpu_s: float = 0.0  # of everything, other detectors included
    accuracy: float | None = None
    stopped: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Short enough to be kept beside the page: a cell is its key, and what is empty is left out."""
        said = {
            name: value
            for name, value in asdict(self).items()
            if value not in (None, "", {}) or name in ("struck", "hit")
        }
        return {**said, "cell": self.cell.key}

    @staticmethod
    def from_dict(given: Mapping[str, Any]) -> Line:
        named = {name: Named(tuple(one["end"]), dict(one["first"])) for name, one in given["named"].items()}
        empty: dict[str, Any] = {"accusing": {}, "suspecting": {}}
        return Line(**{**empty, **given, "cell": Cell.from_key(given["cell"]), "named": named})


def judged(cell: Cell, version: str, rules: Sequence[Rule] = RULES) -> Line:
    """Play this cell and let everybody look at it."""
    cpu = time.process_time()
    watching: list[Watching] = []

    def watch(training: Training) -> Watching:
        watching.append(Watching(training))
        return watching[0]

    run = played(cell, watch)
    with one_thread():
        others = {**watching[0].verdicts(), tutorials.NAME: tutorials.named_by_round(run.chart)}
    began = time.perf_counter()
    rounds = [number for number, _ in run.chart.cohorts]
    looking = [rule for rule in rules if cell.fault == LEAK or rule.code != GROWTH]
    findings = {number: examine(run.chart.until(number), looking).findings for number in rounds}
    looking_s = time.perf_counter() - began
    last = findings[rounds[-1]] if rounds else ()
    sure = {number: held_responsible(some, run.bad, (ACCUSED,)) for number, some in findings.items()}
    layer, step = _right_places(run, findings)
    either = {number: held_responsible(some, run.bad, (ACCUSED, SUSPECTED)) for number, some in findings.items()}
    return Line(
        cell=cell,
        version=version,
        struck={client: list(numbers) for client, numbers in run.struck.items()},
        hit=dict(run.hit),
        named={name: _over_rounds(said, run) for name, said in {OURS: sure, SUSPECTS: either, **others}.items()},
        accusing=_by_code(last, run.bad, ACCUSED),
        suspecting=_by_code(last, run.bad, SUSPECTED),
        layer=layer,
        step=step,
        wall_s=round(run.wall_s, 3),
        looking_s=round(looking_s, 3),
        cpu_s=round(time.process_time() - cpu, 3),
        accuracy=run.accuracy,
        stopped=run.stopped,
    )


def held_responsible(findings: Iterable[Finding], bad: frozenset[str], how: Sequence[str]) -> frozenset[str]:
    """The clients that findings hold responsible: accused, or suspected."""
    found: set[str] = set()
    for one in findings:
        if _manner(one) in how and one.code not in DESCRIBING:
            found |= _responsible(one, bad)
    return frozenset(found)


def _manner(finding: Finding) -> str:
    """What a finding does to those it names; "" when it only tells something."""
    if finding.grade is Grade.SUSPECT:
        return SUSPECTED
    return "" if finding.severity is Severity.INFO else ACCUSED


def _responsible(finding: Finding, bad: frozenset[str]) -> frozenset[str]:
    clients = frozenset(finding.clients)
    return clients & bad if finding.code == PAIRS and clients & bad else clients


def _by_code(findings: Iterable[Finding], bad: frozenset[str], how: str) -> dict[str, list[str]]:
    found: dict[str, set[str]] = {}
    for one in findings:
        if _manner(one) == how:
            found.setdefault(one.code, set()).update(_responsible(one, bad))
    return {code: sorted(clients) for code, clients in sorted(found.items())}


def _over_rounds(said: Mapping[int, frozenset[str]], run: Played) -> Named:
    """A bad client that was named before it was struck was named by chance: what counts is from then on."""
    first: dict[str, int] = {}
    for number in sorted(said):
        for client in said[number]:
            if number >= min(run.struck.get(client, (0,))):
                first.setdefault(client, number)
    return Named(tuple(sorted(said[max(said)])) if said else (), first)


def _right_places(run: Played, findings: Mapping[int, Iterable[Finding]]) -> tuple[Score | None, Score | None]:
    """Of the clients whose first finding of the right kind came: layers and steps that it names rightly, and of how
    many. Which step is told by the finding itself, or by a bracket whose end it is."""
    first: dict[str, Finding] = {}
    for number in sorted(findings):
        for one in findings[number]:
            for client in set(one.clients) & run.bad if one.code == run.expected else ():
                first.setdefault(client, one)
    layers = [set(first[client].layers) == set(right) for client, right in run.layers.items() if client in first]
    steps = [right in _steps(first[client]) for client, right in run.steps.items() if client in first]
    return _score(layers) if run.layers else None, _score(steps) if run.steps else None


def _steps(finding: Finding) -> list[object]:
    return [finding.evidence[key] for key in STEP_KEYS if key in finding.evidence]


def _score(right: Sequence[bool]) -> Score:
    return [sum(right), len(right)]
