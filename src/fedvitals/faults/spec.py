"""What can go wrong, as a job says it: which fault, in whom, when, how strong. Needs no torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedvitals.errors import JobError

OF = ("classes", "rows")
MOST = 1000  # faults a job: every pair of them is compared


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """One fault. It strikes the named clients or a share of all, from one round to another, both included."""

    kind: str
    clients: tuple[str, ...] = ()
    share: float | None = None  # of the clients; which ones is drawn once a run, from its seed
    from_round: int = 0
    until_round: int | None = None  # the last round it strikes in; None: to the end
    strength: float | None = None  # None: the fault's own default
    of: str = "classes"  # label-flip: is `strength` a share of the client's classes, or of its rows?

    def __post_init__(self) -> None:
        if type(self.kind) is not str or not self.kind:
            raise JobError(f"faults.kind = {self.kind!r} should be the name of a fault")
        object.__setattr__(self, "clients", _client_ids(self.clients))
        object.__setattr__(self, "share", _number("share", self.share))
        object.__setattr__(self, "strength", _number("strength", self.strength))
        if self.share is not None and not 0.0 < self.share <= 1.0:
            raise JobError(f"faults.share = {self.share:g} is out of range; right is above 0 and at most 1")
        _check_rounds(self.from_round, self.until_round)
        if self.of not in OF:
            raise JobError(f"faults.of = {self.of!r} is not one of {', '.join(OF)}")

    def strikes_in(self, round: int) -> bool:
        return self.from_round <= round and (self.until_round is None or round <= self.until_round)

    def overlaps(self, other: FaultSpec) -> bool:
        """The same fault could strike one client twice in a round."""
        meets = other.until_round is None or self.from_round <= other.until_round
        met = self.until_round is None or other.from_round <= self.until_round
        named = bool(self.clients) and bool(other.clients)
        shared = not named or bool(set(self.clients) & set(other.clients))
        return self.kind == other.kind and meets and met and shared

    def to_dict(self) -> dict[str, object]:
        """What a job file says; what was left out stays out, since TOML has no word for nothing."""
        said: dict[str, object] = {"kind": self.kind, "from_round": self.from_round, "of": self.of}
        if self.clients:
            said["clients"] = list(self.clients)
        for name in ("share", "until_round", "strength"):
            if getattr(self, name) is not None:
                said[name] = getattr(self, name)
        return said


def refuse_duplicates(specs: Sequence[FaultSpec]) -> None:
    """One fault twice in one client in one round means nothing: it is a slip of the pen."""
    if len(specs) > MOST:
        raise JobError(f"faults: there are {len(specs):,}; at most {MOST:,} are allowed")
    for index, spec in enumerate(specs):
        for earlier in range(index):
            if spec.overlaps(specs[earlier]):
                raise JobError(
                    f"faults: number {earlier + 1} and number {index + 1} are both {spec.kind!r} for the same clients "
                    "and rounds; keep one, or give them other clients or other rounds"
                )


def _client_ids(given: object) -> tuple[str, ...]:
    if not isinstance(given, list | tuple) or any(type(one) not in (str, int) for one in given):
        raise JobError(f"faults.clients = {given!r} should be a list of client ids, such as [3] or ['alice']")
    ids = tuple(one if isinstance(one, str) else format(one, "d") if abs(one) < 2**63 else "" for one in given)
    if not all(0 < len(one) <= 1000 for one in ids):
        raise JobError("faults.clients names a client by no or far too many characters")
    if len(set(ids)) != len(ids):
        raise JobError(f"faults.clients = {list(ids)!r} names a client twice")
    return ids


def _number(name: str, value: object) -> float | None:
    if value is None:
        return None
    if type(value) not in (int, float):
        raise JobError(f"faults.{name} = {value!r} should be a number")
    try:
        number = float(value)  # type: ignore[arg-type]  # its type was just looked at
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise JobError(f"faults.{name} = {value!r} is not a finite number")
    return number


def _check_rounds(first: object, last: object) -> None:
    for name, value in (("from_round", first), ("until_round", last)):
        if value is None and name == "until_round":
            continue
        if type(value) is not int:
            raise JobError(f"faults.{name} = {value!r} should be a whole number")
        if value < 0:
            raise JobError(f"faults.{name} = {value} is out of range; right is at least 0")
    if isinstance(first, int) and isinstance(last, int) and last < first:
        raise JobError(f"faults.until_round = {last} lies before from_round = {first}")
