"""Which run, round and client the current thread or task is busy with: what log records are labelled with.

Sessions may overlap in one thread and end in any order, or in another thread than they began in. So each knows what it
began in and whether it is over, and whoever asks gets the innermost that is not.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Whereabouts:
    """Of one session."""

    run: str | None = None
    round: int | None = None
    client: str | None = None
    owner: int | None = None  # the recorder: of two in one process, each keeps its own logs
    outer: Whereabouts | None = None  # None of the outermost alone, which is never over
    over: bool = False


NOWHERE = Whereabouts()
_CURRENT: ContextVar[Whereabouts] = ContextVar("fedvitals", default=NOWHERE)


def current() -> Whereabouts:
    return _not_over(_CURRENT.get())


def enter(whereabouts: Whereabouts) -> Whereabouts:
    whereabouts.outer = _not_over(_CURRENT.get())
    _CURRENT.set(whereabouts)
    return whereabouts


def leave(whereabouts: Whereabouts | None) -> None:
    """The session is over, wherever it is closed; those that began after it go on."""
    if whereabouts is not None:
        whereabouts.over = True
        _CURRENT.set(_not_over(_CURRENT.get()))


def _not_over(found: Whereabouts) -> Whereabouts:
    while found.over and found.outer is not None:
        found = found.outer
    return found
