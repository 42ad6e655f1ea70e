"""Things that take time: context managers (and decorators) that become Span records.

A training opens and closes several in a round, each time with cold caches. So an end only notes down what is known, and
the recorder makes records of all that were noted, a few times a second, in its own thread.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from fedvitals.capture.attributes import as_json
from fedvitals.capture.failures import in_words
from fedvitals.capture.phase_memory import Held
from fedvitals.capture.recorder import Recorder
from fedvitals.vocabulary import PHASES

C = TypeVar("C", bound=Callable[..., Any])

LONGEST_ERROR = 500
KNOWN = frozenset(PHASES)

Where = tuple[int | None, str | None, int | None]  # round, client, attempt
NOWHERE: Where = (None, None, None)


class SpanSession:
    """One stretch of time, recorded when it ends, however it ends. As a decorator it times every call."""

    _measures_memory = False
    _told: str | None = None  # beside attributes

    def __init__(
        self,
        recorder: Recorder,
        name: str,
        where: Where = NOWHERE,
        attributes: dict[str, Any] | None = None,
    ) -> None:
        self.recorder = recorder
        self.name = self._kept_as = name if type(name) is str else str(name)
        self._where = where
        self._attributes = attributes or {}
        self._start_ns = 0
        self._held: Held | None = None

    def note(self, **attributes: Any) -> None:
        """Add to what is kept of this span."""
        self._attributes.update(attributes)

    def __enter__(self) -> Self:
        recorder = self.recorder
        # First of all, so that what measuring takes is in no gap between two phases.
        self._start_ns = recorder.clock() - recorder.origin_ns
        if self._measures_memory and recorder.memory.wants(self.name) and recorder.alive:
            self._held = recorder.memory.begin(self.name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._record(error)
        except Exception as own:
            self.recorder.trouble("span", own)

    def __call__(self, function: C) -> C:
        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            with self._again():
                return function(*args, **kwargs)

        @functools.wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            with self._again():
                return await function(*args, **kwargs)

        return cast(C, awaited if inspect.iscoroutinefunction(function) else timed)

    def _again(self) -> Self:
        """A session of its own for each call: calls may be nested, or run in many threads."""
        other = copy.copy(self)
        other._attributes = dict(self._attributes)
        return other

    def _record(self, error: BaseException | None) -> None:
        recorder, told = self.recorder, self._told
        held, self._held = self._held, None
        memory = recorder.memory.end(held) if held is not None and recorder.alive else ""
        if self._attributes or memory:
            told = self._in_full(memory)
        failed = None if error is None else in_words(error, LONGEST_ERROR)
        # Last of all: what comes after lies between two phases, and nothing explains it.
        end_ns = recorder.clock() - recorder.origin_ns
        if held is None and end_ns - self._start_ns >= recorder.memory.long_ns:
            recorder.memory.lasted(self.name, end_ns - self._start_ns)
        recorder.noted(self._kept_as, self._start_ns, end_ns, self._where, failed, told)

    def _in_full(self, memory: str) -> str:
        """All that is told of it beside its times."""
        return as_json(self._attributes, memory)


class PhaseSession(SpanSession):
    """A span whose name is one of PHASES; a name of the user's own is kept as an attribute of `other`."""

    _measures_memory = True

    def __init__(
        self, recorder: Recorder, name: str, where: Where = NOWHERE, attributes: dict[str, Any] | None = None
    ) -> None:
        super().__init__(recorder, name, where, attributes)
        if self.name not in KNOWN:
            self._kept_as, self._told = "other", _named(self.name)

    def _in_full(self, memory: str) -> str:
        if self._told is not None:
            self._attributes.setdefault("name", self.name)
        return super()._in_full(memory)


@functools.lru_cache(maxsize=64)
def _named(name: str) -> str:
    return as_json({"name": name})
