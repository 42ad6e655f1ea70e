"""Runs side by side: how they were set up, how they learnt, what they took; and which differences are real."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedvitals.diagnose.writing import times
from fedvitals.profile.comparison.noise import LEAST_SEEDS, Interval, ratio_of_rounds, ratio_of_seeds
from fedvitals.profile.comparison.summary import Summary
from fedvitals.store.table import Floats

LAST = 0.25  # of the evaluations: how good a run became, not how it began
JOB = ("data.", "model.")  # what these say makes the task: where it differs, learning cannot be compared


@dataclass(frozen=True, slots=True)
class Measure:
    """Something that is compared."""

    name: str
    unit: str  # s, B, share, or nothing
    worse: int  # +1: more is worse; -1: less is
    of_run: Callable[[Summary], float | None]
    of_rounds: Callable[[Summary], Floats] | None = None  # what it is made of, to tell noise by
    sums: bool = False  # the rounds add up to it; else it is their median
    exact: bool = False  # counted, not measured: every difference is real
    of_process: bool = False  # what two runs in one process share


@dataclass(frozen=True, slots=True)
class Difference:
    """One measure of one group of runs against the first."""

    measure: str
    unit: str
    first: float | None
    other: float | None
    ratio: float | None  # other to first
    low: float | None
    high: float | None
    basis: str  # "seeds", "rounds", "counted", or why nothing can be said
    real: bool
    worse: bool  # and real


@dataclass(frozen=True, slots=True)
class Compared:
    """One group of runs against the first."""

    runs: tuple[Summary, ...]
    config: tuple[tuple[str, Any, Any], ...]  # key, the first's value, this one's
    differences: tuple[Difference, ...]
    new_findings: tuple[str, ...]  # codes that the first has not
    gone_findings: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The first group, and each of the others against it."""

    first: tuple[Summary, ...]
    others: tuple[Compared, ...]

    def regressions(self, beyond: float) -> list[Difference]:
        """Real differences for the worse by more than this share."""
        return [
            one
            for other in self.others
            for one in other.differences
            if one.worse and one.ratio is not None and abs(one.ratio - 1.0) > beyond
        ]


def _final(values: Floats) -> float | None:
    known = values[np.isfinite(values)]
    return float(np.median(known[-max(round(LAST * len(known)), 1) :])) if len(known) else None


def _total(values: Floats) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.sum()) if len(known) else None


def _tail(values: Floats) -> Floats:
    return values[-max(round(LAST * len(values)), 1) :]


def _middle(values: Floats) -> float | None:
    return float(np.median(values)) if len(values) else None


MEASURES = (
    Measure("wall time", "s", 1, lambda run: run.wall_s, lambda run: run.rounds_s, sums=True),
    Measure("round time", "s", 1, lambda run: _middle(run.rounds_s), lambda run: run.rounds_s),
    Measure("accuracy", "share", -1, lambda run: _final(run.accuracies), lambda run: _tail(run.accuracies)),
    Measure("loss", "", 1, lambda run: _final(run.losses), lambda run: _tail(run.losses)),
    Measure("bytes up", "B", 1, lambda run: _total(run.rounds_bytes_up), exact=True),
    Measure("bytes down", "B", 1, lambda run: _total(run.rounds_bytes_down), exact=True),
    Measure("peak memory", "B", 1, lambda run: run.peak_memory, lambda run: run.rounds_memory, of_process=True),
)


def compare(runs: Sequence[Summary]) -> Comparison:
    """Runs that differ by their seed alone are one group; the group of the first run is the first."""
    groups: dict[object, list[Summary]] = {}
    for one in runs:
        groups.setdefault(one.group, []).append(one)
    some = [tuple(group) for group in groups.values()]
    if len(some) == 1:  # the same set-up: then each run is held against the first
        some = [(one,) for one in some[0]]
    return Comparison(some[0], tuple(_against(some[0], other) for other in some[1:]))


def _against(first: Sequence[Summary], other: Sequence[Summary]) -> Compared:
    codes, known = ({f.code for one in some for f in one.findings} for some in (other, first))
    return Compared(
        runs=tuple(other),
        config=tuple(_config(first[0], other[0])),
        differences=tuple(_difference(measure, first, other) for measure in MEASURES),
        new_findings=tuple(sorted(codes - known)),
        gone_findings=tuple(sorted(known - codes)),
        notes=tuple(_notes(first, other)),
    )


def _config(first: Summary, other: Summary) -> list[tuple[str, Any, Any]]:
    """What is set otherwise; nothing where one of them does not tell how it was set."""
    if not first.config or not other.config:
        return []
    keys = sorted(first.config.keys() | other.config.keys())
    return [
        (key, first.config.get(key), other.config.get(key))
        for key in keys
        if first.config.get(key) != other.config.get(key)
    ]


def _notes(first: Sequence[Summary], other: Sequence[Summary]) -> list[str]:
    notes = []
    task = [key for key, _, _ in _config(first[0], other[0]) if key.startswith(JOB)]
    if task:
        notes.append(f"these are different jobs ({', '.join(task[:5])}): how well they learn is not comparable")
    if not first[0].config or not other[0].config:
        notes.append("a run without a recorded configuration: whether it is the same job is not known")
    if {one.run.id for one in first} & {one.run.id for one in other}:
        notes.append("the same run twice: it differs from itself in nothing")
    if len(first[0].rounds_s) != len(other[0].rounds_s):
        rounds = times(len(first[0].rounds_s), "round")
        notes.append(f"{rounds} against {len(other[0].rounds_s):,}: totals are not of equal work")
    if min(len(first), len(other)) < LEAST_SEEDS:
        notes.append(
            f"fewer than {LEAST_SEEDS} seeds each: noise is told by the rounds of one run, which says nothing about "
            f"other seeds"
        )
    return notes


def _difference(measure: Measure, first: Sequence[Summary], other: Sequence[Summary]) -> Difference:
    before, after = _mean(measure, first), _mean(measure, other)
    if before is None or after is None:
        return Difference(measure.name, measure.unit, before, after, None, None, None, "not recorded", False, False)
    ratio = after / before if before else None
    if measure.exact:
        real = before != after
        basis, found = "counted", None
    else:
        basis, found = _interval(measure, first, other)
        real = found is not None and found.real
    worse = real and ratio is not None and (ratio - 1.0) * measure.worse > 0
    low, high = (found.low, found.high) if found else (None, None)
    return Difference(measure.name, measure.unit, before, after, ratio, low, high, basis, real, worse)


def _process(one: Summary) -> tuple[Any, ...]:
    """Which it was; a run that does not tell is taken to have been alone."""
    told = one.run.environment
    return (told["host"], told["pid"]) if "pid" in told and "host" in told else (one.run.id,)


def _mean(measure: Measure, runs: Sequence[Summary]) -> float | None:
    known = [value for value in map(measure.of_run, runs) if value is not None]
    return sum(known) / len(known) if known else None


def _interval(measure: Measure, first: Sequence[Summary], other: Sequence[Summary]) -> tuple[str, Interval | None]:
    def values(runs: Sequence[Summary]) -> Floats:
        found = [measure.of_run(one) for one in runs]
        return np.array([np.nan if value is None else value for value in found])

    if measure.of_process and len({_process(one) for one in (*first, *other)}) < len(first) + len(other):
        return "runs of one process", None  # the later ones hold what the earlier left
    by_seed = ratio_of_seeds(values(first), values(other))
    if by_seed is not None:
        return "seeds", by_seed
    if measure.of_rounds is None:
        return "one run each", None
    by_round = ratio_of_rounds(measure.of_rounds(first[0]), measure.of_rounds(other[0]), sums=measure.sums)
    if by_round is None:
        return "too few rounds", None
    return "rounds", by_round
