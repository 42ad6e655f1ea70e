"""Things that take time: context managers (and decorators) that become Span records."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from fedvitals.capture.recorder import Recorder
from fedvitals.vocabulary import PHASES, Span

P = ParamSpec("P")
T = TypeVar("T")

MAX_ATTRIBUTES_JSON = 4_096


class SpanSession:
    """One stretch of time, recorded when it ends, however it ends. As a decorator it times every call."""

    def __init__(
        self,
        recorder: Recorder,
        name: str,
        *,
        round: int | None = None,
        client: str | None = None,
        attempt: int | None = None,
        parent: int | None = None,
        attributes: dict[str, Any] | None = None,
        on_end: Callable[[str, float], None] | None = None,
    ) -> None:
        self.recorder = recorder
        self.name = name
        self._where = (round, client, attempt)
        self._parent = parent
        self._attributes = attributes or {}
        self._on_end = on_end
        self._id = 0
        self._start_ns = 0

    def note(self, **attributes: Any) -> None:
        """Add to what is kept of this span."""
        self._attributes.update(attributes)

    def __enter__(self) -> Self:
        self._id = self.recorder.next_id()
        self._start_ns = self.recorder.now()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._record(self.recorder.now(), error)
        except Exception as own:
            self.recorder.trouble("span", own)

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def timed(*args: P.args, **kwargs: P.kwargs) -> T:
            with SpanSession(
                self.recorder, self.name, round=self._where[0], client=self._where[1], attributes=dict(self._attributes)
            ):
                return function(*args, **kwargs)

        return timed

    def _record(self, end_ns: int, error: BaseException | None) -> None:
        round_number, client, attempt = self._where
        phase = self.name if self.name in PHASES or self._on_end is None else "other"
        if phase != self.name:
            self._attributes.setdefault("name", self.name)
        span = Span(
            id=self._id,
            parent=self._parent,
            name=phase,
            start_ns=self._start_ns,
            end_ns=end_ns,
            round=round_number,
            client=client,
            attempt=attempt,
            thread=threading.current_thread().name,
            error=f"{type(error).__name__}: {error}"[:500] if error is not None else None,
            attributes=as_json(self._attributes) if self._attributes else None,
        )
        self.recorder.emit([span])
        if self._on_end is not None:
            self._on_end(phase, (end_ns - self._start_ns) / 1e9)


def as_json(values: dict[str, Any]) -> str:
    """Whatever was handed over, as bounded JSON; what JSON does not know is kept as text."""
    text = json.dumps({str(key): _plain(value) for key, value in values.items()}, default=str)
    return text if len(text) <= MAX_ATTRIBUTES_JSON else json.dumps({"cut": text[:MAX_ATTRIBUTES_JSON]})


def _plain(value: Any) -> Any:
    """Tensors and numpy scalars of one element become numbers."""
    if isinstance(value, str | int | float | bool | None | dict | list | tuple):
        return value
    item = getattr(value, "item", None)
    if item is not None and getattr(value, "numel", lambda: getattr(value, "size", 0))() == 1:
        return item()
    return str(value)[:200]
