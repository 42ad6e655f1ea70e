"""The groups of cells that claims are made about, by name."""

from __future__ import annotations

from collections.abc import Iterable

from fedvitals.bench.faults.design import LOUD, LOUD_FLIP_PARTITIONS, QUIET
from fedvitals.bench.faults.judging import Line
from fedvitals.bench.faults.truth import IN_TRAINING
from fedvitals.faults.fault import DataFault, UpdateFault
from fedvitals.faults.registry import BY_KIND

LEAST_HIT = 0.2  # share of a client's rows below which a flip of some classes is too little to ask for
MANY = "30 or 100 clients"
EVERY, HALF = "from round 5, all clients a round", "from round 5, half of the clients a round"
AT_ONCE = "the same, but for gaussian updates and label flips"
LATER = frozenset({"gaussian-update", "label-flip"})  # loud ones that need not be found within two participations


def is_loud(line: Line) -> bool:
    """A fault that should be found at once; label flips only where others hold the same labels."""
    cell = line.cell
    flip_too_quiet = cell.fault == "label-flip" and cell.partition not in LOUD_FLIP_PARTITIONS
    return cell.fault in LOUD and cell.strength == "default" and not flip_too_quiet


def is_quiet(line: Line) -> bool:
    return (line.cell.fault, line.cell.strength) in QUIET


def in_update(line: Line) -> bool:
    """Whether the fault shows in what is sent: what detectors that see updates alone could find."""
    fault = BY_KIND.get(line.cell.fault)
    return fault is not None and (issubclass(fault, DataFault | UpdateFault) or fault.kind in IN_TRAINING)


def hit_enough(line: Line, client: str) -> bool:
    """A flip of a third of the classes is asked for only where it hits a fifth of the client's rows."""
    return line.cell.strength != "third" or line.hit.get(client, 0.0) >= LEAST_HIT


def loud_groups(lines: Iterable[Line]) -> dict[str, list[Line]]:
    """Loud faults by circumstance; goals are about the first two, and the same of half cohorts."""
    loud = [line for line in lines if is_loud(line)]
    few, many = [line for line in loud if line.cell.clients < 20], _where(loud, 1.0, 5, 20)
    return {
        f"{EVERY}, {MANY}": many,
        AT_ONCE: [line for line in many if line.cell.fault not in LATER],
        f"{EVERY}, 10 clients": _where(few, 1.0, 5, 0),
        f"{HALF}, {MANY}": _where(loud, 0.5, 5, 20),
        f"{HALF}, 10 clients": _where(few, 0.5, 5, 0),
        "from round 0, all clients a round": _where(loud, 1.0, 0, 0),
        "from round 0, half of the clients a round": _where(loud, 0.5, 0, 0),
    }


def copied_groups(lines: Iterable[Line]) -> dict[str, list[Line]]:
    """Updates that are another client's; the goal is about the first."""
    copies = [line for line in lines if line.cell.fault == "duplicate"]
    asked = _where(copies, 1.0, 5, 20)
    return {
        f"{EVERY}, {MANY}": asked,
        "the same, exact copies": [line for line in asked if line.cell.strength == "default"],
        "the same, copies with 1% noise": [line for line in asked if line.cell.strength == "noisy"],
        "in any circumstances": copies,
    }


def quiet_groups(lines: Iterable[Line]) -> dict[str, list[Line]]:
    """Quiet faults from round 5, by fault and circumstance; the first of each fault is what its goal is about."""
    quiet = [line for line in lines if is_quiet(line) and line.cell.from_round == 5]
    names = {"label-noise": "label noise, 30% of the rows", "label-flip": "a third of the classes flipped"}
    found: dict[str, list[Line]] = {}
    for kind, _ in QUIET:
        own = [line for line in quiet if line.cell.fault == kind]
        every, name = _where(own, 1.0, 5, 0), names.get(kind, kind)
        found[f"{name}, all clients a round, {MANY}"] = _where(own, 1.0, 5, 20)
        found[f"{name}, all clients a round, 10 clients"] = [line for line in every if line.cell.clients < 20]
        found[f"{name}, half of the clients a round"] = _where(own, 0.5, 5, 0)
    return found


def _where(lines: Iterable[Line], share: float, from_round: int, least: int) -> list[Line]:
    cells = ((line, line.cell) for line in lines)
    return [
        line for line, cell in cells if cell.share == share and cell.from_round == from_round and cell.clients >= least
    ]
