"""Which cells are played, and in which order: few enough for an afternoon, chosen so that every pair of circumstances
meets.

For each seed a pairwise covering design over the cells that exist: every fault and strength with every problem,
partition, number of clients, share, number of bad clients and first round, and each of these with each other. It is
built greedily (Cohen, Dalal, Fredman, Patton: "The AETG System", IEEE TSE 1997), so that its beginning covers most
pairs; another seed gives another design. Beside it stand the cells that the claims are about (loud faults, quiet
faults, FedDebug's own protocol) and the clean runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations, product, zip_longest
from typing import Any

import numpy as np

from fedvitals.bench.faults.cells import BAD, PARTITIONS, Cell
from fedvitals.bench.faults.existing import CLIENTS, FROM_ROUNDS, SHARES, check_tuning, variants, why_not
from fedvitals.bench.faults.problems import PROBLEMS
from fedvitals.faults.registry import BY_KIND
from fedvitals.randomness import stream

Row = dict[str, Any]
Levels = Mapping[str, Sequence[Any]]
Pair = tuple[tuple[str, Any], tuple[str, Any]]
LOUD = (
    "sign-flip",
    "scaled-update",
    "gaussian-update",
    "zero-update",
    "stale-update",
    "nan-update",
    "frozen-layer",
    "exploding-lr",
    "unnormalised-input",
    "crash",
    "label-flip",
)
LOUD_FLIP_PARTITIONS = ("iid", "dirichlet-1.0")  # where a full flip of labels is loud
COPIES = (("duplicate", "default"), ("duplicate", "noisy"))
QUIET = (("label-noise", "default"), ("label-flip", "third"), ("backdoor", "default"))
TRIES = 6  # rows that each step of the greedy design chooses from
SEEDS = (1, 0, 3, 2)  # odd ones first: they are for measuring, and a bench that is cut short should measure
TUNING_SEEDS = (0, 2, 4)


def planned(*, tuning: bool = False) -> list[Cell]:
    """All cells, the most telling first: one of each claim in turn, and one of all the rest, so that a bench that is
    cut short has measured each. Data that is not here is left out; `existing.omitted` says so."""
    problems = [name for name, one in PROBLEMS.items() if not one.missing and not (tuning and one.reserved)]
    seeds = TUNING_SEEDS if tuning else SEEDS
    claims: list[list[Iterator[Cell]]] = [
        *([clean([name], seed) for seed in seeds] for name in problems if PROBLEMS[name].reserved),
        [_cells(loud(problems, seed), seed) for seed in seeds],
        [_cells(loud(problems, seed, share=0.5), seed) for seed in seeds],
        [_cells(quiet(problems, seed), seed) for seed in seeds],
        [_cells(copied(problems, seed), seed) for seed in seeds],
        [_rest(problems, seed) for seed in seeds],
    ]
    cells = dict.fromkeys(_dealt(chain.from_iterable(claim) for claim in claims))
    if tuning:
        for cell in cells:
            check_tuning(cell)
    return list(cells)


def _rest(problems: Sequence[str], seed: int) -> Iterator[Cell]:
    """The covering design, FedDebug's circumstances and the other clean runs."""
    known = [name for name in problems if not PROBLEMS[name].reserved]
    rows = (covering(_levels(problems), _exists, seed), feddebugs(problems))
    return _dealt((*(_cells(some, seed) for some in rows), clean(known, seed)))


def quick() -> list[Cell]:
    """A slice of two minutes for a continuous check: every fault once, on digits, and some clean runs."""
    kinds = [kind for kind, strength in variants() if strength == "default"]
    found = [Cell("digits", "dirichlet-1.0", 10, fault=kind, bad=_bad(kind, "1"), from_round=5) for kind in kinds]
    found.append(Cell("synthetic", "iid", 30, 0.5, "sign-flip", bad="3"))
    found.append(Cell("digits", "iid", 30, 1.0, "label-flip", bad="20%"))
    healthy = [Cell("digits", partition, 10, share) for partition in PARTITIONS[:4] for share in SHARES]
    return [cell for cell in _dealt((found, healthy)) if not why_not(cell)]


def covering(levels: Levels, exists: Callable[[Row], bool], seed: int) -> Iterator[Row]:
    """Rows in which every pair of levels that can meet does, the rows that cover most pairs first."""
    random = stream(seed, "bench design")
    left = dict.fromkeys(pair for pair in _pairs(levels) if _possible(pair, levels, exists, random))
    while left:
        anchors = list(left)
        begun = [dict(anchors[random.integers(len(anchors))]) for _ in range(TRIES)]
        grown = [_grown(row, levels, left, exists, random) for row in begun]
        best = max(grown, key=lambda row: sum(pair in left for pair in _met(row)))
        if best:
            yield best
        for pair in _met(best):
            left.pop(pair, None)


def _levels(problems: Sequence[str]) -> Levels:
    return {
        "variant": variants(),
        "problem": problems,
        "partition": PARTITIONS,
        "clients": CLIENTS,
        "share": SHARES,
        "bad": BAD,
        "from_round": FROM_ROUNDS,
    }


def loud(problems: Sequence[str], seed: int, share: float = 1.0) -> Iterator[Row]:
    """Loud faults from round 5, this share of the clients a round, at least 20 of them."""
    kinds = [(kind, "default") for kind in LOUD]
    levels = {**_levels(problems), "variant": kinds, "clients": (30, 100), "share": (share,), "from_round": (5,)}

    def stays(row: Row) -> bool:
        flip = row.get("variant", ("",))[0] == "label-flip"
        return _exists(row) and not (flip and row.get("partition", "iid") not in LOUD_FLIP_PARTITIONS)

    return covering(levels, stays, seed)


def quiet(problems: Sequence[str], seed: int) -> Iterator[Row]:
    """Quiet faults from round 5, all clients a round."""
    levels = {**_levels(problems), "variant": QUIET, "share": (1.0,), "from_round": (5,)}
    return covering(levels, _exists, seed)


def copied(problems: Sequence[str], seed: int) -> Iterator[Row]:
    """Updates copied from round 5 on, exactly or with a little noise, all clients a round, at least 20 of them."""
    levels = {"variant": COPIES, "clients": (30, 100), "share": (1.0,), "from_round": (5,)}
    return covering({**_levels(problems), **levels}, _exists, seed)


def feddebugs(problems: Sequence[str]) -> Iterator[Row]:
    """FedDebug's own circumstances: one client whose labels are all wrong, all clients every round."""
    pictures = [name for name in ("digits", "mnist", "fashion") if name in problems]
    for problem, partition, clients in product(pictures, PARTITIONS[:4], (10, 30)):
        row = {"variant": ("label-flip", "default"), "problem": problem, "partition": partition, "clients": clients}
        yield {**row, "share": 1.0, "bad": "1", "from_round": 0}


def clean(problems: Sequence[str], seed: int) -> Iterator[Cell]:
    """Runs in which nothing is wrong."""
    for problem, partition, clients, share in product(problems, PARTITIONS, CLIENTS, SHARES):
        cell = Cell(problem, partition, clients, share, seed=seed)
        if not why_not(cell):
            yield cell


def _cells(rows: Iterable[Row], seed: int) -> Iterator[Cell]:
    for row in rows:
        rest = dict(row)
        kind, strength = rest.pop("variant")
        yield Cell(**{**rest, "bad": _bad(kind, rest["bad"])}, fault=kind, strength=strength, seed=seed)


def _bad(kind: str, bad: str) -> str:
    return "0" if BY_KIND[kind].on_server else bad


def _exists(row: Row) -> bool:
    """Whether a cell can look like this; what a row leaves open is taken as it hinders least."""
    rest = {"problem": "mnist", "clients": 10, "bad": "1", **row}
    kind, strength = rest.pop("variant", ("sign-flip", "default"))
    return not why_not(Cell(**{**rest, "bad": _bad(kind, rest["bad"])}, fault=kind, strength=strength))


def _pairs(levels: Levels) -> Iterator[Pair]:
    for first, second in combinations(levels, 2):
        for one, other in product(levels[first], levels[second]):
            yield (first, one), (second, other)


def _possible(pair: Pair, levels: Levels, exists: Callable[[Row], bool], random: np.random.Generator) -> bool:
    """Whether some whole row holds this pair: looked for as the design itself would."""
    return exists(dict(pair)) and any(_grown(dict(pair), levels, {}, exists, random) for _ in range(5))


def _grown(
    row: Row, levels: Levels, left: Mapping[Pair, None], exists: Callable[[Row], bool], random: np.random.Generator
) -> Row:
    """A whole row that holds this beginning, each further level chosen for the uncovered pairs that it makes; empty
    when it came to a dead end."""
    open_ones = [name for name in levels if name not in row]
    for name in [open_ones[place] for place in random.permutation(len(open_ones))]:
        allowed = [level for level in levels[name] if exists({**row, name: level})]
        if not allowed:
            return {}
        gains = [_gain(row, (name, level), left) for level in allowed]
        best = [level for level, gain in zip(allowed, gains, strict=True) if gain == max(gains)]
        row[name] = best[random.integers(len(best))]
    return _ordered(row, levels)


def _gain(row: Row, new: tuple[str, Any], left: Mapping[Pair, None]) -> int:
    """Uncovered pairs of this level with what the row has. A pair stands in the order of the levels: either way."""
    return sum((one, new) in left or (new, one) in left for one in row.items()) if left else 0


def _ordered(row: Row, levels: Levels) -> Row:
    return {name: row[name] for name in levels if name in row}


def _met(row: Row) -> Iterator[Pair]:
    return combinations(row.items(), 2)


def _dealt(parts: Iterable[Iterable[Cell]]) -> Iterator[Cell]:
    """One of each in turn, so that a bench that is cut short has some of everything."""
    for some in zip_longest(*parts):
        yield from (cell for cell in some if cell is not None)
