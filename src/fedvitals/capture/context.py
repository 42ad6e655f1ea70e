"""Which run, round and client the current thread or task is busy with: what log records are labelled with."""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import NamedTuple


class Whereabouts(NamedTuple):
    run: str | None = None
    round: int | None = None
    client: str | None = None
    owner: int | None = None  # the recorder: of two in one process, each keeps its own logs


NOWHERE = Whereabouts()
_CURRENT: ContextVar[Whereabouts] = ContextVar("fedvitals", default=NOWHERE)


def current() -> Whereabouts:
    return _CURRENT.get()


def enter(whereabouts: Whereabouts) -> Token[Whereabouts]:
    return _CURRENT.set(whereabouts)


def leave(token: Token[Whereabouts] | None) -> None:
    """Back to where we were; a session that is closed in another thread than it was opened in has no way back."""
    if token is None:
        return
    try:
        _CURRENT.reset(token)
    except (ValueError, RuntimeError):
        _CURRENT.set(NOWHERE)
