"""Selections by name, as a job names them: `make("oort", seed, clients)`."""

from __future__ import annotations

from collections.abc import Callable

from fedvitals.errors import JobError, nearest
from fedvitals.train.selections.availability import AvailableSelection
from fedvitals.train.selections.floor import FlooredSelection
from fedvitals.train.selections.oort import OortSelection
from fedvitals.train.selections.pisces import PiscesSelection
from fedvitals.train.selections.protocol import Selection
from fedvitals.train.selections.round_robin import RoundRobinSelection
from fedvitals.train.selections.uniform import RandomSelection

SELECTIONS: dict[str, Callable[[int, int], Selection]] = {
    "random": lambda seed, clients: RandomSelection(seed),
    "round-robin": lambda seed, clients: RoundRobinSelection(),
    "available": AvailableSelection,
    "oort": OortSelection,
    "pisces": PiscesSelection,
}


def make(name: str, seed: int, clients: int, floor: float = 0.0) -> Selection:
    """The selection of this name for so many clients; `floor` of its places go to who was asked least."""
    kind = SELECTIONS.get(name)
    if kind is None:
        raise JobError(f"server.selection: there is no selection {name!r}{nearest(name, list(SELECTIONS))}")
    chosen = kind(seed, clients)
    return FlooredSelection(chosen, floor, seed) if floor > 0.0 else chosen
