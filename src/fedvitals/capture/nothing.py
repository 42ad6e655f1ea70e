"""The recorder switched off: the same calls, which do nothing in well under a microsecond.

They take whatever they are given: a call that the recorder itself would only have warned of must not end a training
because the recorder is off, or because its disk was full that day.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType, TracebackType
from typing import Any, Protocol, Self, TypeVar

from fedvitals.vocabulary import Finding

C = TypeVar("C", bound=Callable[..., Any])
T = TypeVar("T")


class Timed(Protocol):
    """What `span` and `phase` give, whether or not somebody takes the time."""

    def note(self, **attributes: Any) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
    def __call__(self, function: C) -> C: ...


class NoSpan:
    """A span that nobody times; as a decorator it gives the function back."""

    def note(self, *_: Any, **__: Any) -> None: ...
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...
    def __call__(self, function: C) -> C:
        return function


NO_SPAN: Timed = NoSpan()


class NoClient:
    def watch(self, *_: Any, **__: Any) -> None: ...
    def phase(self, *_: Any, **__: Any) -> Timed:
        return NO_SPAN

    def allocations(self, *_: Any, **__: Any) -> Timed:
        return NO_SPAN

    def batches(self, loader: Iterable[T]) -> Iterator[T]:
        return iter(loader)

    def epoch(self, *_: Any, **__: Any) -> Timed:
        return NO_SPAN

    def step(self, *_: Any, **__: Any) -> None: ...
    def submit(self, *_: Any, **__: Any) -> None: ...
    def to_bytes(self, *_: Any, **__: Any) -> bytes:
        return b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


class NoCohort:
    attempts: tuple[int, ...] = ()
    outcomes: tuple[str, ...] = ()

    def step(self, *_: Any, **__: Any) -> None: ...
    def sampled(self, *_: Any, **__: Any) -> None: ...
    def sampled_norms(self, *_: Any, **__: Any) -> None: ...
    def submit(self, *_: Any, **__: Any) -> None: ...


_NO_VERDICTS: Mapping[object, tuple[Finding, ...]] = MappingProxyType({})
_CLIENT = NoClient()
_COHORT = NoCohort()


class NoRound:
    number = -1
    version = 0

    def client(self, *_: Any, **__: Any) -> NoClient:
        return _CLIENT

    def cohort(self, *_: Any, **__: Any) -> NoCohort:
        return _COHORT

    def phase(self, *_: Any, **__: Any) -> Timed:
        return NO_SPAN

    def allocations(self, *_: Any, **__: Any) -> Timed:
        return NO_SPAN

    def selected(self, *_: Any, **__: Any) -> None: ...
    def evaluated(self, *_: Any, **__: Any) -> None: ...
    def evaluated_each(self, *_: Any, **__: Any) -> None: ...
    def failed(self, *_: Any, **__: Any) -> None: ...
    def late(self, *_: Any, **__: Any) -> None: ...
    def rejected(self, *_: Any, **__: Any) -> None: ...
    def verdicts(self, *_: Any, **__: Any) -> Mapping[object, tuple[Finding, ...]]:
        return _NO_VERDICTS

    def ticket(self, *_: Any, **__: Any) -> bytes:
        return b""

    def merge(self, *_: Any, **__: Any) -> None: ...
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


_ROUND = NoRound()


class NoRun:
    """A run that is not recorded."""

    id: str | None = None
    origin_ns = 0

    def round(self, *_: Any, **__: Any) -> NoRound:
        return _ROUND

    def client(self, *_: Any, **__: Any) -> NoClient:
        return _CLIENT

    def version(self, *_: Any, **__: Any) -> int:
        return 0

    def span(self, *_: Any, **__: Any) -> Timed:
        return NO_SPAN

    def allocations(self, *_: Any, **__: Any) -> Timed:
        return NO_SPAN

    def plan_steps(self, *_: Any, **__: Any) -> tuple[int, ...]:
        return ()

    def close(self, *_: Any, **__: Any) -> None: ...
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...
