"""Lines of results -> counts and shares, for any group of cells and any way of looking. Pure functions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fedvitals.bench.faults.judging import GROWTH, OURS, Line
from fedvitals.faults.registry import BY_KIND

Z95 = 1.96


class Share(NamedTuple):
    """So many of so many."""

    part: int
    of: int

    @property
    def value(self) -> float:
        return self.part / self.of if self.of else math.nan

    @property
    def band(self) -> tuple[float, float]:
        """95% (Wilson), as if the ones counted were independent."""
        if not self.of:
            return math.nan, math.nan
        z2, rate = Z95**2, self.value
        middle = (rate + z2 / (2 * self.of)) / (1 + z2 / self.of)
        half = Z95 / (1 + z2 / self.of) * math.sqrt(rate * (1 - rate) / self.of + z2 / (4 * self.of**2))
        return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True, slots=True)
class Tally:
    """Clients of some cells, by one way of looking."""

    cells: int = 0
    bad: int = 0
    named: int = 0
    found: int = 0  # bad, and named at the end

    @property
    def recall(self) -> Share:
        return Share(self.found, self.bad)

    @property
    def precision(self) -> Share:
        return Share(self.found, self.named)

    @property
    def f1(self) -> float:
        """Of found clients; NaN when there were none to find and none was named."""
        total = self.bad + self.named
        return 2 * self.found / total if total else math.nan


def with_bad(lines: Iterable[Line]) -> list[Line]:
    """Those in which a client was struck."""
    return [line for line in lines if line.struck]


def tally(lines: Iterable[Line], way: str = OURS, counts: Callable[[Line, str], bool] | None = None) -> Tally:
    """Over the cells with bad clients; `counts` may leave out bad clients that nobody is asked to find."""
    cells = bad = named = found = 0
    for line in with_bad(lines):
        asked = {client for client in line.struck if counts is None or counts(line, client)}
        spared = set(line.struck) - asked
        end = set(line.named[way].end) - spared
        cells, bad, named, found = cells + 1, bad + len(asked), named + len(end), found + len(end & asked)
    return Tally(cells, bad, named, found)


def participations_until(line: Line, client: str, way: str = OURS) -> int | None:
    """How many of a client's struck participations it took until it was named; None: it never was."""
    first = line.named[way].first.get(client)
    return None if first is None else sum(number <= first for number in line.struck[client])


def found_within(
    lines: Iterable[Line], most: int, way: str = OURS, counts: Callable[[Line, str], bool] | None = None
) -> Share:
    """Bad clients that were named within so many of their struck participations."""
    waits = [
        participations_until(line, client, way)
        for line in lines
        for client in line.struck
        if counts is None or counts(line, client)
    ]
    return Share(sum(one is not None and one <= most for one in waits), len(waits))


def right_rule(lines: Iterable[Line]) -> Share:
    """Of the bad clients that we found, those whom the rule for their fault names."""
    right = of = 0
    for line in with_bad(lines):
        expected = set(line.accusing.get(BY_KIND[line.cell.fault].finding, ()))
        found = set(line.struck) & set(line.named[OURS].end)
        right, of = right + len(found & expected), of + len(found)
    return Share(right, of)


def right_place(lines: Iterable[Line], what: str) -> Share:
    """Findings that name the right `layer` or `step`, of those that could."""
    scores = [score for line in lines if (score := getattr(line, what)) is not None]
    return Share(sum(right for right, _ in scores), sum(of for _, of in scores))


def server_found(lines: Iterable[Line]) -> Share:
    """Runs with a fault of the server in which the rule for it spoke."""
    runs = [line for line in lines if not line.cell.clean and BY_KIND[line.cell.fault].on_server]
    return Share(sum(BY_KIND[line.cell.fault].finding in line.accusing for line in runs), len(runs))


def runs_naming(lines: Sequence[Line], way: str = OURS) -> Share:
    """Clean runs in which some client is named at the end."""
    runs = [line for line in lines if line.cell.clean]
    return Share(sum(bool(line.named[way].end) for line in runs), len(runs))


def runs_naming_ever(lines: Sequence[Line], way: str = OURS) -> Share:
    """Clean runs in which, after some round, some client was named: what someone looking on would have seen."""
    runs = [line for line in lines if line.cell.clean]
    return Share(sum(bool(line.named[way].first) for line in runs), len(runs))


def runs_by_rule(lines: Sequence[Line], what: str) -> dict[str, Share]:
    """Code -> clean runs in which it is among what is `accusing` or `suspecting` at the end, findings about the run as
    a whole included. That memory grows is the doing of the other detectors: lines that were judged before that rule
    was left out still have it."""
    runs = [line for line in lines if line.cell.clean]
    codes = Counter(code for line in runs for code in getattr(line, what) if code != GROWTH)
    return {code: Share(count, len(runs)) for code, count in sorted(codes.items())}
