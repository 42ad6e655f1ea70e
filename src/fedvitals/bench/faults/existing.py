"""Which cells exist, and why others do not: every cell that the bench leaves out has its reason here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product

from fedvitals.bench.faults.cells import BAD, CLEAN, PARTITIONS, Cell
from fedvitals.bench.faults.problems import PROBLEMS
from fedvitals.errors import FedvitalsError
from fedvitals.faults.registry import BY_KIND

CLIENTS = (10, 30, 100)
SHARES = (1.0, 0.5)
FROM_ROUNDS = (0, 5)
OF_ONE_FAULT = {"label-flip": "third", "duplicate": "noisy"}  # a third of the classes; a copy with 1% noise
NEEDS_NUMBERS = frozenset({"nan-batch", "unnormalised-input"})
MOST_LEAKED = 10  # clients that leak memory: what they leak stays in memory until the run ends
ROWS_LEFT = 0.8  # of a client's rows, those that are not held out


def variants() -> tuple[tuple[str, str], ...]:
    """Every fault with every strength that it has: its default, half of it, and those that one fault alone has."""
    both = product(BY_KIND, ("default", "half"))
    found = [(kind, strength) for kind, strength in both if not _no_strength(kind, strength)]
    return (*found, *OF_ONE_FAULT.items())


def why_not(cell: Cell) -> str:
    """Why this cell does not exist; empty when it does. Data that is not here is not asked for."""
    problem = PROBLEMS[cell.problem]
    if cell.partition == "natural" and cell.clients > problem.natural:
        owners = f"{problem.natural} clients" if problem.natural else "no clients"
        return f"{cell.problem} has {owners} of its own"
    if cell.clean:
        return "" if cell.bad == "0" else "a clean run has no bad clients"
    if (cell.bad == "0") != BY_KIND[cell.fault].on_server:
        return "a fault of the server strikes no client, any other at least one"
    if problem.tokens and cell.fault in NEEDS_NUMBERS:
        return f"{cell.fault} spoils numbers, and {cell.problem} holds tokens"
    if cell.fault == "memory-leak" and len(cell.bad_clients()) > MOST_LEAKED:
        return f"more than {MOST_LEAKED} clients that leak would fill this machine's memory"
    if cell.fault == "dropped-last-batch" and not _has_last_batch(cell):
        return "clients whose rows fit into one batch have no last batch to drop"
    return _no_strength(cell.fault, cell.strength)


def _has_last_batch(cell: Cell) -> bool:
    problem = PROBLEMS[cell.problem]
    rows = min(problem.rows, problem.in_all / cell.clients)
    return ROWS_LEFT * rows > int(problem.train["batch_size"])


def _no_strength(kind: str, strength: str) -> str:
    if strength in OF_ONE_FAULT.values():
        return "" if OF_ONE_FAULT.get(kind) == strength else f"{kind} has no strength {strength!r}"
    usual = BY_KIND[kind].default_strength
    if strength == "half" and (usual is None or usual / 2 < BY_KIND[kind].lowest or usual == 0):
        return f"{kind} has no half strength"
    return ""


def full_cross() -> Iterator[Cell]:
    """Every combination for one seed, whether or not it exists."""
    faults = [(kind, strength, bad) for kind, strength in variants() for bad in ("0", *BAD)]
    faults += [(CLEAN, "default", "0")]
    for problem, partition, clients, share in product(PROBLEMS, PARTITIONS, CLIENTS, SHARES):
        for kind, strength, bad in faults:
            for begin in (0,) if kind == CLEAN else FROM_ROUNDS:
                yield Cell(problem, partition, clients, share, kind, strength, bad, begin)


def omitted() -> dict[str, int]:
    """Reason -> how many combinations a seed do not exist for it, data that is missing here included."""
    reasons: Counter[str] = Counter()
    for cell in full_cross():
        reason = why_not(cell)
        if BY_KIND.get(cell.fault) and reason.startswith("a fault of the server"):
            continue  # a matter of notation, not a cell
        reasons[reason or PROBLEMS[cell.problem].missing] += 1
    reasons.pop("", None)
    no_half = [kind for kind in BY_KIND if _no_strength(kind, "half")]
    return {**dict(reasons), f"no half strength: {', '.join(no_half)}": len(no_half)}


def check_tuning(cell: Cell) -> None:
    """Refuse what is kept for the final measurement: a rule that has seen it cannot be measured on it."""
    if cell.reserved:
        what = f"data set {cell.problem!r}" if PROBLEMS[cell.problem].reserved else f"odd seed {cell.seed}"
        raise FedvitalsError(
            f"{cell.key}: the {what} is kept for the final measurement; while developing take even seeds and "
            f"{', '.join(name for name, one in PROBLEMS.items() if not one.reserved)}"
        )
