"""The reading end of a run: as many as you like, in any process, while it is written or after."""

# ruff: noqa: S608  (table and column names are constants of ours; values are bound)

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedvitals.errors import StoreError
from fedvitals.store import arrays, blocks, packing, rows, status
from fedvitals.store.arrays import ArrayReader
from fedvitals.store.blobs import BlobFolder
from fedvitals.store.column_arrays import kinds_of
from fedvitals.store.connection import open_reader, unreadable
from fedvitals.store.journal import BLOBS, DATABASE, database_bytes
from fedvitals.vocabulary import (
    STATISTICS,
    Blob,
    Evaluation,
    Failure,
    Layout,
    Level,
    LogEntry,
    ModelBlock,
    Participation,
    ResourceSample,
    Round,
    Run,
    Sketch,
    Span,
    Status,
    StepBlock,
    TensorStats,
    UpdateBlock,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_UPDATE_FIELDS = "id, round, layout, rows, kept_steps, present, loss_steps, place"


class SQLiteReader:
    """Reads one run's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / DATABASE
        self._connection = open_reader(self._path)
        self._blobs = BlobFolder(folder / BLOBS)
        self._arrays = ArrayReader(folder)
        self._layouts: dict[int, Layout] = {}
        self._names: dict[int, str] = {}
        self._last_block: UpdateBlock | None = None

    def _rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise unreadable(self._path, error) from error

    def _records(self, kind: Any, order: str = "rowid") -> list[Any]:
        found = self._rows(f"{rows.SELECTIONS[kind]} ORDER BY {order}")
        return list(self._guarded(rows.from_row(kind, row) for row in found))

    def run(self) -> Run:
        found = self._rows(
            "SELECT id, name, status, started_unix_ns, level, ended_ns, config, environment, health FROM run"
        )
        if not found:
            raise StoreError(f"{self._path} holds no run: its recording never began; delete the folder {self.folder}")
        beats = self._rows("SELECT value FROM meta WHERE name = 'heartbeat'")
        return status.settled(self._as_run(found[0]), beats[0][0] if beats else None)

    def _as_run(self, row: Sequence[Any]) -> Run:
        try:
            documents = [json.loads(text) for text in row[6:]]
            if not all(isinstance(document, dict) for document in documents):
                raise TypeError("its configuration is no table")
            return Run(row[0], row[1], Status(row[2]), row[3], Level(row[4]), row[5], *documents)
        except (ValueError, TypeError, RecursionError) as error:
            raise unreadable(self._path, error) from error

    def layouts(self) -> tuple[Layout, ...]:
        found = self._rows("SELECT id, layers, sketch_buckets, unit_layer, units FROM layout ORDER BY id")
        self._layouts = {layout.id: layout for layout in map(packing.layout_from, found)}
        return tuple(self._layouts.values())

    def _layout(self, number: int) -> Layout:
        if number not in self._layouts:
            self.layouts()
        if number not in self._layouts:
            raise StoreError(f"{self._path} has statistics of layout {number}, which it does not describe")
        return self._layouts[number]

    def rounds(self) -> list[Round]:
        return self._records(Round, "number")

    def participations(self, *, client: str | None = None, round: int | None = None) -> list[Participation]:
        """In the order (round, client's arrival)."""
        found = self._of_client(client) if client is not None else self._of_round(round)
        kept = (one for one in found if round is None or one.round == round)
        return sorted(kept, key=lambda one: one.round)

    def _of_client(self, client: str) -> Iterator[Participation]:
        numbers = self._rows("SELECT number FROM client WHERE name = ?", rows.keepable(client))
        if numbers:
            for values in self._guarded(blocks.read_client(self._connection, numbers[0][0])):
                yield Participation._make((client, *values))

    def _of_round(self, round: int | None) -> Iterator[Participation]:
        for keys, fields in self._guarded(blocks.read_blocks(self._connection, blocks.PARTICIPATIONS, round)):
            yield from map(Participation._make, zip(self._clients_of(keys), *fields, strict=True))

    def iterate_participations(self) -> Iterator[Participation]:
        """All of them in the order of arrival, some hundred in memory at a time."""
        return self._of_round(None)

    def participation_columns(self, fields: Collection[str] = Participation._fields) -> dict[str, NDArray[Any]]:
        """By field, in the order (round, client's arrival)."""
        import numpy as np

        known = zip(Participation._fields, kinds_of(Participation), strict=True)
        wanted = {name: kind for name, kind in known if name in fields or name in ("client", "round")}
        kinds = [wanted.get(name) for name in Participation._fields[1:]]
        found = self._guarded(blocks.read_arrays(self._connection, blocks.PARTICIPATIONS, kinds))
        nothing = tuple(np.empty(0, kind) for kind in wanted.values())
        parts = [nothing, *((np.array(self._clients_of(keys), dtype=object), *some) for keys, some in found)]
        columns = dict(zip(wanted, map(np.concatenate, zip(*parts, strict=True)), strict=True))
        order = np.argsort(columns["round"], kind="stable")
        return {name: columns[name][order] for name in wanted if name in fields}

    def _clients_of(self, keys: Sequence[int]) -> list[str]:
        numbers = [key >> 32 for key in keys]
        if not self._names.keys() >= set(numbers):
            self._names = dict(self._rows("SELECT number, name FROM client"))
        try:
            return [self._names[number] for number in numbers]
        except KeyError as error:
            raise unreadable(self._path, ValueError(f"client number {error} has no name")) from error

    def _guarded(self, found: Iterator[Any]) -> Iterator[Any]:
        try:
            yield from found
        except (sqlite3.Error, ValueError, TypeError) as error:
            raise unreadable(self._path, error) from error

    def clients(self) -> list[str]:
        """In the order in which they first appeared."""
        return [name for (name,) in self._rows("SELECT name FROM client ORDER BY number")]

    def update_blocks(self, *, round: int | None = None, after: int | None = None) -> Iterator[UpdateBlock]:
        where = "" if round is None else "AND round = ?3"
        for row in self._paged(f"SELECT {_UPDATE_FIELDS} FROM update_block WHERE id > ?1 {where}", round, after=after):
            yield packing.update_from(row, self._layout(row[2]), self._arrays.read)

    def _paged(
        self, sql: str, round: int | None, page: int = 16, after: int | None = None
    ) -> Iterator[tuple[Any, ...]]:
        """Rows by id, some at a time, so that a slow consumer holds neither memory nor a transaction."""
        after = -(1 << 63) if after is None else after
        while found := self._rows(f"{sql} ORDER BY id LIMIT ?2", after, page, *(() if round is None else (round,))):
            yield from found
            after = found[-1][0]

    def _block_of(self, participation: Participation) -> tuple[UpdateBlock, int] | None:
        number, row = participation.block, participation.block_row
        if number is None or row is None:
            return None
        if self._last_block is None or self._last_block.id != number:
            found = self._rows(f"SELECT {_UPDATE_FIELDS} FROM update_block WHERE id = ?", number)
            if not found:
                return None
            self._last_block = packing.update_from(found[0], self._layout(found[0][2]), self._arrays.read)
        return (self._last_block, row) if 0 <= row < len(self._last_block.stats) else None

    def update_stats(self, participation: Participation) -> tuple[TensorStats, ...]:
        """The update's statistics, a layer each; empty where none were kept."""
        found = self._block_of(participation)
        if found is None:
            return ()
        block, row = found
        bad = [0] * block.stats.shape[1] if block.nonfinite is None else block.nonfinite[row].tolist()
        layers = self._layout(block.layout).layers
        return tuple(
            TensorStats._make((layer.name, layer.size, *values, count))
            for layer, values, count in zip(layers, block.stats[row].tolist(), bad, strict=True)
        )

    def sketch(self, participation: Participation) -> Sketch | None:
        found = self._block_of(participation)
        if found is None or found[0].sketches is None:
            return None
        block, row = found
        norm = participation.update_norm
        if norm is None:
            norms = block.stats[row, :, STATISTICS.index("norm")].astype(float)
            norm = float((norms**2).sum() ** 0.5)
        return Sketch(found[0].sketches[row], norm)

    def model_blocks(self) -> list[ModelBlock]:
        found = self._rows(
            "SELECT version, round, layout, stats, nonfinite, drift_first, drift_last, fingerprint FROM model_block"
            " ORDER BY version"
        )
        return [packing.model_from(row, self._layout(row[2])) for row in found]

    def step_blocks(self, *, round: int | None = None) -> Iterator[StepBlock]:
        where = "" if round is None else "AND round = ?3"
        fields = "id, round, layout, rows, fields, clients, attempts, steps, place"
        for row in self._paged(f"SELECT {fields} FROM step_block WHERE id > ?1 {where}", round):
            yield packing.step_from(row[1:], self._layout(row[2]), self._arrays.read)

    def evaluations(self) -> list[Evaluation]:
        return self._records(Evaluation)

    def spans(self, *, round: int | None = None) -> list[Span]:
        """In the order in which they began."""
        spans = self._spans(round)
        return sorted((span for span in spans if round is None or span.round == round), key=lambda span: span.start_ns)

    def iterate_spans(self) -> Iterator[Span]:
        """All of them in the order of arrival, some hundred in memory at a time."""
        return self._spans(None)

    def _spans(self, round: int | None) -> Iterator[Span]:
        for _, fields in self._guarded(blocks.read_blocks(self._connection, blocks.SPANS, round)):
            yield from map(Span._make, zip(*fields, strict=True))

    def resources(self) -> list[ResourceSample]:
        return self._records(ResourceSample)

    def logs(self, *, client: str | None = None, level: str | None = None) -> list[LogEntry]:
        """Of one client, and of this level or a graver one."""
        graver = set(LEVELS[LEVELS.index(level) :]) if level in LEVELS else {level}
        entries = self._records(LogEntry)
        return [
            entry
            for entry in entries
            if (client is None or entry.client == client) and (level is None or entry.level in graver)
        ]

    def failures(self) -> list[Failure]:
        return self._records(Failure)

    def blobs(self) -> list[Blob]:
        return self._records(Blob)

    def blob(self, name: str) -> bytes:
        return self._blobs.get(name)

    def size_bytes(self) -> int:
        return database_bytes(self._path) + arrays.size_of(self.folder) + self._blobs.size_bytes()

    def close(self) -> None:
        self._connection.close()
        self._arrays.close()
