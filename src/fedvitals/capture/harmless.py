"""The promise that the watcher never harms the watched, in one place.

Every call a training makes into the recorder goes through `harmless`: what it costs is counted, and what goes wrong in
it is reported once and kept from the training. In a forked child, whose recorder is the parent's, such a call does
nothing at all: a lock may be held there by a thread that the child does not have.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from fedvitals.capture.governor import Governor

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F")


class Watched(Protocol):
    """What holds a recorder that takes the blame and the cost."""

    @property
    def recorder(self) -> Accountable: ...


class Accountable(Protocol):
    alive: bool

    @property
    def governor(self) -> Governor: ...
    def trouble(self, where: str, error: Exception) -> None: ...


S = TypeVar("S", bound=Watched)


def harmless_or(
    fallback: F,
) -> Callable[[Callable[Concatenate[S, P], T]], Callable[Concatenate[S, P], T | F]]:
    """Counts the method's time; an exception in it becomes one warning and the answer `fallback`."""

    def guard(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T | F]:
        where = method.__qualname__

        @functools.wraps(method)
        def guarded(self: S, *args: P.args, **kwargs: P.kwargs) -> T | F:
            recorder = self.recorder
            if not recorder.alive:  # a plain attribute, as is what was spent: this is around every call of a training
                return fallback
            began = time.perf_counter_ns()
            try:
                return method(self, *args, **kwargs)
            except Exception as error:
                recorder.trouble(where, error)
                return fallback
            finally:
                recorder.governor.spent_ns += time.perf_counter_ns() - began

        return guarded  # type: ignore[return-value]  # functools.wraps names `self`, Concatenate does not

    return guard


def harmless(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T | None]:
    """The same for methods whose answer nobody needs."""
    guard: Callable[[Callable[Concatenate[S, P], T]], Callable[Concatenate[S, P], T | None]] = harmless_or(None)
    return guard(method)
