"""What can go wrong: the small classes that every fault is one of, told apart by where they strike.

A fault is a frozen value: its strength, and pure functions of what it is handed. Which clients and rounds it strikes is
the injector's business. Importing these needs no torch, so that a job can be checked without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

    from fedvitals.faults.work import LocalWork

Layers = Sequence[tuple[str, tuple[int, ...]]]


class Owner(NamedTuple):
    """Whose rows a data fault spoils. The same owner is spoilt the same way in every round."""

    seed: int
    client: str
    classes: int


class Sending(NamedTuple):
    """An update about to be sent, and what its sender could know."""

    seed: int
    client: str
    attempt: int
    round: int
    others: Sequence[Tensor] = ()  # honest updates of the round
    past: Sequence[Tensor] = ()  # own honest updates of earlier participations, oldest first


@dataclass(frozen=True, slots=True)
class Fault:
    """Base of all. `strength` means what `measures` says; a fault without a measure takes none."""

    kind: ClassVar[str]
    imitates: ClassVar[str]  # in one sentence
    finding: ClassVar[str]  # code of the finding it should give
    measures: ClassVar[str] = ""
    default_strength: ClassVar[float | None] = None
    lowest: ClassVar[float] = 0.0
    highest: ClassVar[float] = 1e9
    whole: ClassVar[bool] = False  # the strength counts something
    on_server: ClassVar[bool] = False

    strength: float = 0.0
    of: str = "classes"


class WorkFault(Fault):
    """Strikes how a client trains, or what it runs on."""

    __slots__ = ()

    def planned(self, work: LocalWork, layers: Layers) -> LocalWork:
        """The participation as it will go wrong."""
        raise NotImplementedError


class DataFault(Fault):
    """Strikes the rows a client trains on, once and for good."""

    __slots__ = ()

    def spoilt(self, x: Tensor, y: Tensor, owner: Owner) -> tuple[Tensor, Tensor]:
        """Other rows and labels; those given stay as they are."""
        raise NotImplementedError


class UpdateFault(Fault):
    """Strikes the update between the client's training and the server."""

    __slots__ = ()
    needs_cohort: ClassVar[bool] = False
    needs_past: ClassVar[bool] = False

    def sent(self, update: Tensor, sending: Sending) -> Tensor:
        """What is sent instead: a new tensor."""
        raise NotImplementedError


class ServerFault(Fault):
    """Strikes the server, so it names no clients."""

    __slots__ = ()
    on_server: ClassVar[bool] = True

    def delay_s(self) -> float:
        """Seconds by which aggregation is held up."""
        raise NotImplementedError
