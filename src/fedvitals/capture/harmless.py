"""The promise that the watcher never harms the watched, in one place.

Every call a training makes into the recorder goes through `harmless`: what it costs is counted, and what goes wrong in
it is reported once and kept from the training.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Watched(Protocol):
    """What holds a recorder that takes the blame and the cost."""

    @property
    def recorder(self) -> Accountable: ...


class Accountable(Protocol):
    def spent(self, ns: int) -> None: ...
    def trouble(self, where: str, error: Exception) -> None: ...


S = TypeVar("S", bound=Watched)


def harmless(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T | None]:
    """Counts the method's time; an exception in it becomes one warning and the answer None."""
    where = method.__qualname__

    @functools.wraps(method)
    def guarded(self: S, *args: P.args, **kwargs: P.kwargs) -> T | None:
        began = time.perf_counter_ns()
        try:
            return method(self, *args, **kwargs)
        except Exception as error:
            self.recorder.trouble(where, error)
            return None
        finally:
            self.recorder.spent(time.perf_counter_ns() - began)

    return guarded  # type: ignore[return-value]  # functools.wraps names `self`, Concatenate does not
