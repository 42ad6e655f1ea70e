"""The engine without rounds: one client at work, and how that ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from torch import Tensor

from fedvitals.faults.work import LocalWork
from fedvitals.train.trained import Failed, Trained
from fedvitals.vocabulary import Outcome


@dataclass(frozen=True, slots=True, eq=False)
class Base:
    """One version of the global model as clients get it. It lives as long as somebody is at work on it."""

    number: int
    weights: Tensor
    integers: Mapping[str, Tensor]
    fingerprint: str


@dataclass(slots=True, eq=False)
class Flight:
    """A client that was asked and is not done."""

    work: LocalWork
    base: Base
    start_ns: int
    down: int  # bytes
    result: Trained | Failed | None = None  # once it is trained
    over: bool = False
    overdue: bool = False  # nobody waits for it any more


class Times(NamedTuple):
    """When it was at work, on the engine's clock."""

    start_ns: int
    end_ns: int
    phases_s: Mapping[str, float | None]
    retries: Mapping[str, int] = {}

    @property
    def duration_s(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9


@dataclass(frozen=True, slots=True, eq=False)
class Landed:
    """An update that came."""

    flight: Flight
    trained: Trained  # of this client alone
    update: Tensor  # [size], after the wire
    up: int  # bytes
    times: Times

    @property
    def name(self) -> str:
        return self.flight.work.name


@dataclass(frozen=True, slots=True, eq=False)
class Gone:
    """A client of whom nothing comes."""

    flight: Flight
    failed: Failed
    outcome: Outcome
    times: Times


@dataclass(frozen=True, slots=True, eq=False)
class Stopped:
    """A client that took too long and was told to stop."""

    flight: Flight
    duration_s: float


@dataclass(frozen=True, slots=True)
class Freed:
    """The server waits no longer for somebody, who goes on."""


Event = Landed | Gone | Stopped | Freed


class Fleet(Protocol):
    """The clients at work, on one clock or the other."""

    @property
    def places(self) -> int:
        """How many may be at work at once."""

    @property
    def at_work(self) -> int:
        """How many are, as far as the server waits for them."""

    @property
    def busy(self) -> Sequence[int]:
        """Clients that cannot be asked, sorted."""

    @property
    def unfinished(self) -> Sequence[Flight]:
        """Of all who are, waited for or not, in the order in which they were asked."""

    def send(self, work: LocalWork, base: Base) -> None:
        """Ask a client."""

    def next(self) -> Event | None:
        """What happens next, at its time; None when nobody is at work."""


@dataclass(slots=True, eq=False)
class Crew:
    """Who is at work."""

    flights: dict[int, Flight] = field(default_factory=dict)  # by client
    waited_for: int = 0

    def joins(self, flight: Flight) -> None:
        self.flights[flight.work.client] = flight
        self.waited_for += 1

    def leaves(self, flight: Flight) -> None:
        del self.flights[flight.work.client]
        flight.over = True
        if not flight.overdue:
            self.waited_for -= 1


class Manned:
    """What fleets on either clock have in common."""

    def __init__(self) -> None:
        self._crew = Crew()

    @property
    def at_work(self) -> int:
        return self._crew.waited_for

    @property
    def busy(self) -> Sequence[int]:
        return sorted(self._crew.flights)

    @property
    def unfinished(self) -> Sequence[Flight]:
        return list(self._crew.flights.values())
