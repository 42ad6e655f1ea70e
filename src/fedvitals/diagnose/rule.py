"""What a rule is: the door that our own rules and a user's use alike.

A rule is a pure function of a `Chart`: it neither reads the store nor looks at a clock, so it says the same of a run
that is going on as of one that has ended. It says what it needs to see; where that is missing the examination answers
"not observable" for it, never "fine".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from fedvitals.vocabulary import Finding

if TYPE_CHECKING:
    from fedvitals.diagnose.chart import Chart


class Sight(StrEnum):
    """What a run may or may not have recorded; the words are how a diagnosis says that it is missing."""

    PARTICIPATIONS = "participations of clients"
    LOSSES = "losses of clients"
    UPDATES = "statistics of updates"
    SKETCHES = "sketches of updates"
    UNITS = "sketches of the last layer's units"
    GRADIENTS = "sampled gradients"
    MODELS = "statistics of the global model"
    EVALUATIONS = "evaluations of the global model"
    CLIENT_EVALUATIONS = "evaluations on clients' own rows"
    CLIENT_PHASES = "phases of clients"
    ROUND_PHASES = "phases of rounds"
    BYTES = "bytes sent and received"
    RESOURCES = "resource samples"


class CannotSee(Exception):  # noqa: N818  (an answer, not an error)
    """A rule found that this run does not show what it looks at; the text says what is missing."""


@runtime_checkable
class Rule(Protocol):
    """One thing that can be wrong."""

    @property
    def code(self) -> str:
        """FL and three figures; the first is the family."""

    @property
    def name(self) -> str:
        """What is wrong, in a few words."""

    @property
    def needs(self) -> frozenset[Sight]:
        """Without all of these it can't see."""

    @property
    def explains(self) -> frozenset[str]:
        """Codes of what follows from it: such findings are folded under this one."""

    @property
    def page(self) -> str:
        """What `explain` shows: what it sees, why it matters, known false alarms, what to do, papers."""

    def look(self, chart: Chart) -> Iterable[Finding]:
        """The findings, none when there is nothing wrong; raises CannotSee when that can't be told."""


@dataclass(frozen=True, slots=True)
class WrittenRule:
    """A rule as one of our modules writes it: its docstring is the page, its function looks."""

    code: str
    name: str
    page: str
    look: Callable[[Chart], Iterable[Finding]]
    needs: frozenset[Sight] = frozenset()
    explains: frozenset[str] = frozenset()
