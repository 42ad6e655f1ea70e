"""What a store must do. `SQLiteStore` is the embedded one; the contract test in `fedvitals.testing` is for all.

Writing goes through a `Journal`, used by one thread. Reading goes through a `RunReader`, as many as you like, in any
process, while the run is going on or after.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from fedvitals.vocabulary import (
    Blob,
    Evaluation,
    Failure,
    Layout,
    LogEntry,
    ModelBlock,
    Participation,
    Record,
    ResourceSample,
    Round,
    Run,
    Sketch,
    Span,
    StepBlock,
    TensorStats,
    UpdateBlock,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


@runtime_checkable
class Journal(Protocol):
    """The writing end of one run."""

    def append(self, records: Sequence[Record]) -> None:
        """Keep these, all or none, and make them visible to readers. A later Run, Round, Layout, Participation or Span
        with the same key replaces the earlier one. Raises StoreError when the medium can't take them."""

    def put_blob(self, data: bytes) -> str:
        """Keep these bytes under their SHA-256, once; gives that name. A `Blob` record says what they are: the writer
        makes it with the name (`BackgroundWriter.put_blob(data, size_bytes, describe=lambda name: Blob(...))`)."""

    def size_bytes(self) -> int:
        """What the run takes on disk now."""

    def close(self) -> None:
        """Give back every resource. Does not say that the run ended: append a Run for that."""


@runtime_checkable
class RunReader(Protocol):
    """The reading end of one run."""

    def run(self) -> Run: ...
    def layouts(self) -> tuple[Layout, ...]: ...
    def rounds(self) -> list[Round]: ...
    def participations(self, *, client: str | None = None, round: int | None = None) -> list[Participation]:
        """In the order (round, client's arrival)."""

    def iterate_participations(self) -> Iterator[Participation]:
        """All of them, without holding them all in memory."""

    def participation_columns(self, fields: Collection[str] = Participation._fields) -> dict[str, NDArray[Any]]:
        """All of them by field, or by some fields, in the order (round, client's arrival). Numbers are float64 with NaN
        for missing ones; those that are never missing (`attempt`, `round`, `base_version`, the instants) int64; texts
        are objects."""

    def clients(self) -> list[str]: ...
    def update_blocks(self, *, round: int | None = None, after: int | None = None) -> Iterator[UpdateBlock]:
        """By their ids, which grow; `after` leaves out those up to this id: for a reader that has them."""

    def update_stats(self, participation: Participation) -> tuple[TensorStats, ...]:
        """The update's statistics, a layer each; empty where none were kept."""

    def sketch(self, participation: Participation) -> Sketch | None: ...
    def model_blocks(self) -> list[ModelBlock]: ...
    def step_blocks(self, *, round: int | None = None) -> Iterator[StepBlock]: ...
    def evaluations(self) -> list[Evaluation]: ...
    def spans(self, *, round: int | None = None) -> list[Span]:
        """In the order in which they began."""

    def iterate_spans(self) -> Iterator[Span]:
        """All of them in the order of arrival, without holding them all in memory."""

    def resources(self) -> list[ResourceSample]: ...
    def logs(self, *, client: str | None = None, level: str | None = None) -> list[LogEntry]: ...
    def failures(self) -> list[Failure]: ...
    def blobs(self) -> list[Blob]:
        """What is kept beside the records; the bytes come by `blob`."""

    def blob(self, name: str) -> bytes:
        """The bytes kept under this name; StoreError when missing or damaged."""

    def size_bytes(self) -> int: ...
    def close(self) -> None: ...


@runtime_checkable
class Store(Protocol):
    """Where runs are kept."""

    def create(self, run: Run) -> Journal:
        """Begin a run. Its id must be new and a plain name (no slash, no `..`)."""

    def open(self, run_id: str) -> RunReader:
        """A run by its id, by its name (the newest so named), or `last`."""

    def runs(self) -> list[Run]:
        """All runs, newest first; damaged ones are left out here and named by `damaged`."""

    def damaged(self) -> list[tuple[str, str]]:
        """Runs that could not be read: id and reason."""

    def delete(self, run_id: str) -> int:
        """Remove a run; gives the bytes that were freed."""
