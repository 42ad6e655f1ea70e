"""The writing end of a run: records in, one transaction for each batch."""

from __future__ import annotations

import os
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedvitals.errors import StoreError
from fedvitals.store import packing, rows, schema
from fedvitals.store.arrays import ArrayWriter
from fedvitals.store.blobs import BlobFolder
from fedvitals.store.blocks import PARTICIPATIONS, SPANS, BlockWriter, participation_keys, span_keys
from fedvitals.store.cohorts import singly
from fedvitals.store.connection import open_writer
from fedvitals.store.plain import to_json
from fedvitals.vocabulary import (
    Layout,
    ModelBlock,
    Participation,
    Participations,
    Record,
    Run,
    Span,
    StepBlock,
    UpdateBlock,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

Parts = list[tuple[tuple[Any, ...], list["NDArray[Any]"]]]  # rows, and the arrays that go beside each

DATABASE = "run.db"
BLOBS = "blobs"
HEARTBEAT_S = 1.0
_KEY = ("client", "attempt")
_TOLD = (Participation, Participations)
_BLOCKS = (  # of updates and of steps
    "INSERT OR REPLACE INTO update_block VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    "INSERT INTO step_block VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)",
)
_BAD_VALUES = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.DataError, sqlite3.InterfaceError)


class BadRecordError(StoreError):
    """A record that no store could keep, such as arrays of the wrong shape. The medium is fine."""


class SQLiteJournal:
    """Writes one run's folder. Used by one thread at a time."""

    def __init__(self, folder: Path, busy_timeout_s: float = 5.0, *, unborn: bool = False) -> None:
        self.folder = folder
        self._pid = os.getpid()
        self._path = folder / DATABASE
        self._blobs = BlobFolder(folder / BLOBS)
        self._blob_bytes = self._blobs.size_bytes()
        self._arrays = ArrayWriter(folder)
        self._connection = open_writer(self._path, busy_timeout_s, unborn=unborn)
        if schema.version_of(self._connection) < schema.VERSION:
            schema.migrate(self._connection, schema.MIGRATIONS)
        self._file = self._identity()
        self._clients: dict[str, int] = {}
        self._layouts: dict[int, Layout] = {}
        self._heartbeat_due = 0.0
        self._participations = BlockWriter(self._connection, PARTICIPATIONS)
        self._spans = BlockWriter(self._connection, SPANS)
        self._writers = self._by_kind()

    def _by_kind(self) -> dict[type, Callable[[list[Any]], None]]:
        """How each kind of record is written, in the order in which a batch is: layouts before what needs them."""
        return {
            Run: self._write_run,
            Layout: self._write_layouts,
            **dict.fromkeys(schema.ROW_KINDS, self._write_rows),
            Participation: self._write_participations,
            Participations: self._write_cohorts,
            Span: self._write_spans,
            ModelBlock: self._write_models,
        }

    def append(self, records: Sequence[Record]) -> None:
        """Keep these, all or none. `BadRecordError`: one of them is impossible; `StoreError`: the medium is."""
        groups: defaultdict[type, list[Any]] = defaultdict(list)
        for record in records:
            groups[record.__class__].append(record)
        if Participation in groups and Participations in groups:  # one may replace another: the order matters
            del groups[Participations]
            groups[Participation] = singly([one for one in records if isinstance(one, _TOLD)])
        if strange := groups.keys() - self._writers.keys() - {UpdateBlock, StepBlock}:
            raise BadRecordError(f"a store keeps no {', '.join(sorted(kind.__name__ for kind in strange))}")
        self._check_file()
        if groups or time.monotonic() >= self._heartbeat_due:
            self._commit(groups)

    def _commit(self, groups: dict[type, list[Any]]) -> None:
        layouts, end = self._layouts.copy(), self._arrays.end
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for kind, write in self._writers.items():
                if kind in groups:
                    write(groups[kind])
            self._write_blocks(groups.get(UpdateBlock, ()), groups.get(StepBlock, ()))
            self._beat()
            self._connection.execute("COMMIT")
        except BaseException as error:
            self._undo(layouts, end)
            if isinstance(error, sqlite3.Error | OSError) and not isinstance(error, _BAD_VALUES):
                raise StoreError(f"{self._path} cannot be written: {error}") from error
            if isinstance(error, Exception):
                raise BadRecordError(f"a record cannot be kept: {error}") from error
            raise

    def _undo(self, layouts: dict[int, Layout], end: int) -> None:
        """Bring what we remember back to what is on disk."""
        self._layouts = layouts
        self._arrays.end = end
        self._heartbeat_due = 0.0
        with suppress(sqlite3.Error):  # the medium may be gone altogether
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            self._clients = dict(self._connection.execute("SELECT name, number FROM client").fetchall())
            self._participations.forget()
            self._spans.forget()

    def _beat(self) -> None:
        """Say that the writer lives; a reader on another machine has no other sign."""
        now = time.monotonic()
        if now >= self._heartbeat_due:
            self._heartbeat_due = now + HEARTBEAT_S
            self._connection.execute("INSERT OR REPLACE INTO meta VALUES ('heartbeat', ?)", (time.time_ns(),))

    def _write_run(self, runs: list[Run]) -> None:
        run = runs[-1]
        documents = to_json(run.config), to_json(run.environment), to_json(run.health)
        head = run.id, run.name, str(run.status), run.started_unix_ns, str(run.level), run.ended_ns
        self._connection.execute("INSERT OR REPLACE INTO run VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?)", head + documents)

    def _write_layouts(self, layouts: list[Layout]) -> None:
        for layout in layouts:
            self._connection.execute("INSERT OR REPLACE INTO layout VALUES (?, ?, ?, ?, ?)", packing.layout_row(layout))
            self._layouts[layout.id] = layout

    def _write_rows(self, records: list[Any]) -> None:
        self._connection.executemany(rows.INSERTIONS[type(records[0])], map(rows.to_row, records))

    def _write_participations(self, records: list[Any]) -> None:
        numbers = self._numbers_of([record[0] for record in records])
        self._participations.write(participation_keys(numbers, [record[1] for record in records]), records)

    def _write_cohorts(self, cohorts: list[Participations]) -> None:
        clients, attempts = ([*chain.from_iterable(one.columns[name] for one in cohorts)] for name in _KEY)
        keys = participation_keys(self._numbers_of(clients), attempts)
        self._participations.write_cohorts(keys, cohorts)

    def _numbers_of(self, clients: list[str]) -> list[int]:
        try:
            return [self._clients[name] for name in clients]
        except KeyError:
            self._name_clients(clients)
            return [self._clients[name] for name in clients]

    def _name_clients(self, clients: list[str]) -> None:
        """Give new clients their numbers, in the order in which they appear."""
        for name in dict.fromkeys(clients):
            if name not in self._clients:
                number = self._clients[name] = len(self._clients)
                self._connection.execute("INSERT INTO client VALUES (?, ?)", (number, rows.keepable(name)))

    def _write_spans(self, records: list[Any]) -> None:
        self._spans.write(span_keys(records), records)

    def _write_blocks(self, updates: Sequence[UpdateBlock], steps: Sequence[StepBlock]) -> None:
        """Rows, and all their arrays in one go."""
        parts = [packing.update_parts(block, self._layout_of(block)) for block in updates]
        parts += [packing.step_parts(block, self._layout_of(block)) for block in steps]
        if parts:
            placed = self._with_places(parts)
            for statement, some in zip(_BLOCKS, (placed[: len(updates)], placed[len(updates) :]), strict=True):
                self._connection.executemany(statement, some)

    def _layout_of(self, block: UpdateBlock | ModelBlock | StepBlock) -> Layout:
        layout = self._layouts.get(block.layout)
        if layout is None:
            raise StoreError(f"{type(block).__name__} names layout {block.layout}, which was not written before it")
        return layout

    def _with_places(self, parts: Parts) -> list[tuple[Any, ...]]:
        """The rows, each with the place where its arrays now are."""
        place, placed = self._arrays.write_arrays([array for _, arrays in parts for array in arrays]), []
        for row, arrays in parts:
            placed.append((*row, place))
            place += sum(array.nbytes for array in arrays)
        return placed

    def _write_models(self, blocks: list[ModelBlock]) -> None:
        for block in blocks:
            row = packing.model_row(block, self._layout_of(block))
            self._connection.execute("INSERT OR REPLACE INTO model_block VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)

    def put_blob(self, data: bytes) -> str:
        """Keep these bytes under their SHA-256, once; gives that name."""
        self._check_file()
        try:
            name, added = self._blobs.put(data)
        except OSError as error:
            raise StoreError(f"a blob cannot be written to {self._blobs.folder}: {error.strerror or error}") from error
        self._blob_bytes += added
        return name

    def size_bytes(self) -> int:
        """What the run takes on disk now."""
        return self._blob_bytes + self._arrays.end + database_bytes(self._path)

    def close(self) -> None:
        """Fold the log into the file, so that the folder can be copied, and let go of it. Not in a forked child: there
        the file is the parent's."""
        if os.getpid() != self._pid:
            return
        self._arrays.close()
        self._blobs.close()
        with suppress(sqlite3.Error):
            if self._identity() == self._file:
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with suppress(sqlite3.Error):
            self._connection.close()

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _check_file(self) -> None:
        """A file that was deleted takes writes for ever; nobody would see them."""
        if self._identity() != self._file:
            raise StoreError(f"{self._path} was deleted or replaced while the run was being recorded")


def database_bytes(path: Path) -> int:
    total = 0
    for suffix in ("", "-wal"):
        with suppress(OSError):
            total += os.stat(f"{path}{suffix}").st_size
    return total
