"""The recorder switched off: the same calls, which do nothing in well under a microsecond."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType, TracebackType
from typing import Any, Protocol, Self, SupportsInt, TypeVar

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

    def note(self, **attributes: Any) -> None: ...
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...
    def __call__(self, function: C) -> C:
        return function


NO_SPAN: Timed = NoSpan()


class NoClient:
    def watch(self, model: Any) -> None: ...
    def phase(self, name: str, **attributes: Any) -> Timed:
        return NO_SPAN

    def allocations(self, name: str = "allocations", *, most: int = 32) -> Timed:
        return NO_SPAN

    def batches(self, loader: Iterable[T]) -> Iterator[T]:
        return iter(loader)

    def epoch(self) -> Timed:
        return NO_SPAN

    def step(self, loss: Any = None) -> None: ...
    def submit(self, state: Any, **values: Any) -> None: ...
    def to_bytes(self) -> bytes:
        return b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


class NoCohort:
    attempts: tuple[int, ...] = ()

    def step(self, stacked_gradients: Any, losses: Any = None) -> None: ...
    def sampled(self, step: int, rows: Any, slots: Any = None) -> None: ...
    def sampled_norms(self, step: int, stats: Any, slots: Any = None) -> None: ...
    def submit(self, stacked_states: Any = None, losses: Any = None, **values: Any) -> None: ...


_NO_VERDICTS: Mapping[object, tuple[Finding, ...]] = MappingProxyType({})
_CLIENT = NoClient()
_COHORT = NoCohort()


class NoRound:
    number = -1

    def client(self, client: Any, *, samples: SupportsInt | None = None) -> NoClient:
        return _CLIENT

    def cohort(self, ids: Any, **values: Any) -> NoCohort:
        return _COHORT

    def phase(self, name: str, **attributes: Any) -> Timed:
        return NO_SPAN

    def allocations(self, name: str = "allocations", *, most: int = 32) -> Timed:
        return NO_SPAN

    def selected(self, count: int) -> None: ...
    def evaluated(self, **values: Any) -> None: ...
    def evaluated_each(self, clients: Any, **columns: Any) -> None: ...
    def failed(self, client: Any, **values: Any) -> None: ...
    def late(self, client: Any, **values: Any) -> None: ...
    def rejected(self, clients: Any) -> None: ...
    def verdicts(self) -> Mapping[object, tuple[Finding, ...]]:
        return _NO_VERDICTS

    def ticket(self, client: Any) -> bytes:
        return b""

    def merge(self, data: bytes, *, client: Any, outcome: str = "used") -> None: ...
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


_ROUND = NoRound()


class NoRun:
    """A run that is not recorded."""

    id: str | None = None
    origin_ns = 0

    def round(self, number: int, model: Any = None) -> NoRound:
        return _ROUND

    def client(self, client: Any, **values: Any) -> NoClient:
        return _CLIENT

    def version(self, model: Any) -> int:
        return 0

    def span(self, name: str, **attributes: Any) -> Timed:
        return NO_SPAN

    def allocations(self, name: str = "allocations", *, most: int = 32) -> Timed:
        return NO_SPAN

    def plan_steps(self, steps: int) -> tuple[int, ...]:
        return ()

    def close(self, error: BaseException | None = None) -> None: ...
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...
