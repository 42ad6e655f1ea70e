"""Participations and spans as blocks of rows: how the journal writes them and a reader finds them.

A block's `keys` hold one 64-bit number a row: for a span its id, for a participation the number of its client and the
attempt. They can be searched without unpacking the rest: one client's history is a scan of 8 bytes a participation. A
record that is written again takes the place it had, so the order of arrival stays.
"""

# ruff: noqa: S608  (table and column names are constants of ours; values are bound)

from __future__ import annotations

import json
import sqlite3
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

from fedvitals.errors import StoreError
from fedvitals.store import column_arrays, column_reader, columns
from fedvitals.store.cohorts import joined, singly
from fedvitals.store.column_blocks import pack_blocks
from fedvitals.store.schema import TABLES
from fedvitals.store.schema import columns as fields_of
from fedvitals.store.seen import Seen
from fedvitals.vocabulary import Participation, Participations, Span

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK_ROWS = 512
FULL_ROWS = 64  # a smaller last block is written again with more rows, so that a slow run has few blocks
_LOW_BITS = 0xFFFF_FFFF
_LOW_63_BITS = (1 << 63) - 1

Row = tuple[Any, ...]
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class BlockKind:
    """How one kind of record is kept in blocks. The first `skipped` fields are in the keys alone."""

    table: str
    sql_types: tuple[str, ...]  # of the fields after the skipped ones; the first of them tells equal keys apart
    round_field: int  # counted after the skipped ones
    skipped: int


def _kind(record: type, skipped: int) -> BlockKind:
    fields = fields_of(record)
    kept = list(fields)[skipped:]
    return BlockKind(TABLES[record], tuple(fields[name] for name in kept), kept.index("round"), skipped)


PARTICIPATIONS = _kind(Participation, skipped=1)
SPANS = _kind(Span, skipped=0)


def participation_keys(clients: Sequence[int], attempts: Iterable[int]) -> list[int]:
    """The number of the client and the low 32 bits of the attempt."""
    return [client << 32 | attempt & _LOW_BITS for client, attempt in zip(clients, attempts, strict=True)]


def span_keys(rows: Sequence[Row]) -> list[int]:
    """The low 63 bits of the ids."""
    return [row[0] & _LOW_63_BITS for row in rows]


class BlockWriter:
    """The writing end of one block table."""

    def __init__(self, connection: sqlite3.Connection, kind: BlockKind) -> None:
        self._connection = connection
        self._kind = kind
        self._seen = Seen()
        self._tail: tuple[list[int], list[Row]] = ([], [])
        self._next_id = 1

    def forget(self) -> None:
        """After a rollback: go on behind what is on disk."""
        self._tail = ([], [])
        newest = self._connection.execute(f"SELECT max(id) FROM {self._kind.table}").fetchone()[0]
        self._next_id = (newest or 0) + 1

    def write(self, keys: list[int], records: list[Row]) -> None:
        """Rows with their keys, in the order of arrival."""
        seen = self._seen.add(keys)
        if seen:
            keys, records = self._replace(keys, records, set(seen))
        self._put(self._tail[0] + keys, self._tail[1] + records)

    def write_cohorts(self, keys: list[int], cohorts: Sequence[Participations]) -> None:
        """The same of whole cohorts, column by column; one by one where they are few or have to go among others."""
        if len(keys) < FULL_ROWS or self._tail[0]:
            self.write(keys, singly(cohorts))
            return
        seen = self._seen.add(keys)
        if seen:
            self._put(*self._replace(keys, singly(cohorts), set(seen)))
            return
        fields = list(joined(cohorts).values())
        blocks = -(-len(keys) // BLOCK_ROWS)
        ends = [len(keys) * number // blocks for number in range(blocks + 1)]
        parts = [slice(*ends) for ends in pairwise(ends)]
        rounds = fields[self._kind.round_field]
        for part, packed in zip(parts, pack_blocks(fields, self._kind.sql_types, parts, len(keys)), strict=True):
            self._keep(self._next_id, keys[part], rounds if isinstance(rounds, columns.Same) else rounds[part], packed)
            self._next_id += 1

    def _replace(self, keys: list[int], records: list[Row], seen: set[int]) -> tuple[list[int], list[Row]]:
        """Put rows that came before where they were; gives the others, each once, as they arrived."""
        skipped = self._kind.skipped
        identities = [(key, row[skipped]) for key, row in zip(keys, records, strict=True)]
        rows = dict(zip(identities, records, strict=True))  # the first place, the last value
        new = {identity for place, identity in enumerate(identities) if place not in seen}
        late = {identity: row for identity, row in rows.items() if identity not in new}
        known = set(late)
        for place, (key, row) in enumerate(zip(*self._tail, strict=True)):
            self._tail[1][place] = late.pop((key, row[skipped]), row)
        block = self._next_id
        while late and (block := self._replace_before(block, late)):
            pass
        gone = known - late.keys()
        left = {identity: row for identity, row in rows.items() if identity not in gone}
        return [key for key, _ in left], list(left.values())

    def _put(self, keys: list[int], rows: list[Row]) -> None:
        for start in range(0, len(rows), BLOCK_ROWS):
            some_keys, some = keys[start : start + BLOCK_ROWS], rows[start : start + BLOCK_ROWS]
            self._store(self._next_id, some_keys, list(zip(*some, strict=True))[self._kind.skipped :])
            full = len(some) >= FULL_ROWS
            self._next_id += full
            self._tail = ([], []) if full else (some_keys, some)

    def _store(self, block: int, keys: Sequence[int], fields: Sequence[Any]) -> None:
        packed = columns.pack(fields, self._kind.sql_types, rows=len(keys), quick=len(keys) < FULL_ROWS)
        self._keep(block, keys, fields[self._kind.round_field], packed)

    def _keep(self, block: int, keys: Sequence[int], rounds: Any, packed: bytes) -> None:
        head = (block, len(keys), *_extremes(rounds), pack_keys(keys))
        self._connection.execute(f"INSERT OR REPLACE INTO {self._kind.table} VALUES (?, ?, ?, ?, ?)", head)
        self._connection.execute(f"INSERT OR REPLACE INTO {self._kind.table}_columns VALUES (?, ?)", (block, packed))

    def _replace_before(self, block: int, late: dict[tuple[int, Any], Row]) -> int:
        """Replace, and strike off, those that are in the block before this one; gives its id, 0 if there is none."""
        found = self._connection.execute(
            f"SELECT id, rows, keys FROM {self._kind.table} WHERE id < ? ORDER BY id DESC LIMIT 1", (block,)
        ).fetchone()
        if found is None:
            return 0
        number, keys = int(found[0]), unpack_keys(found[2], found[1])
        if not {key for key, _ in late}.isdisjoint(keys):
            skipped = self._kind.skipped
            ((_, data),) = _packed(self._connection, self._kind, [[(number, keys)]])
            fields = column_reader.unpack(data, len(keys), len(self._kind.sql_types))
            pairs = zip(keys, zip(*fields, strict=True), strict=True)
            changed = [late.pop((key, row[0]), (None,) * skipped + row) for key, row in pairs]
            self._store(number, keys, list(zip(*changed, strict=True))[skipped:])
        return number


def _extremes(rounds: Any) -> tuple[int | None, int | None]:
    if isinstance(rounds, columns.Same):
        rounds = (rounds.value,)
    elif hasattr(rounds, "dtype"):
        rounds = (int(rounds.min()), int(rounds.max()))
    known = [number for number in rounds if number is not None]
    return (clamped(min(known)), clamped(max(known))) if known else (None, None)


def clamped(number: int) -> int:
    """Within what SQLite can hold."""
    return max(-(1 << 63), min(number, (1 << 63) - 1))


def pack_keys(keys: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(keys)}q", *keys)


def unpack_keys(data: bytes, rows: int) -> tuple[int, ...]:
    if len(data) != 8 * rows:
        raise StoreError("a block of records is damaged (its keys do not fit its rows): restore the run from a copy")
    return struct.unpack(f"<{rows}q", data)


Keys = tuple[int, ...]


def read_blocks(
    connection: sqlite3.Connection, kind: BlockKind, round: int | None = None
) -> Iterator[tuple[Keys, list[columns.Column]]]:
    """Keys and columns (but the skipped) of all blocks, or of those that may hold this round."""
    for keys, data in _packed(connection, kind, _heads(connection, kind, round)):
        yield keys, column_reader.unpack(data, len(keys), len(kind.sql_types))


def read_arrays(
    connection: sqlite3.Connection, kind: BlockKind, kinds: Sequence[str | None]
) -> Iterator[tuple[Keys, list[NDArray[Any]]]]:
    """The same of all blocks, each column an array of its kind; those without one are left out."""
    for keys, data in _packed(connection, kind, _heads(connection, kind)):
        yield keys, column_arrays.unpack_arrays(data, len(keys), kinds)


def _heads(
    connection: sqlite3.Connection, kind: BlockKind, round: int | None = None, page: int = 64
) -> Iterator[Sequence[tuple[int, Keys]]]:
    """Ids and keys, some at a time, so that a slow consumer holds neither much memory nor a transaction."""
    number = None if round is None else clamped(round)
    where = "id > ?" if number is None else "id > ? AND low_round <= ? AND high_round >= ?"
    sql = f"SELECT id, rows, keys FROM {kind.table} WHERE {where} ORDER BY id LIMIT {page}"
    last = -(1 << 63)
    while found := connection.execute(sql, (last, *(() if number is None else (number, number)))).fetchall():
        yield [(block, unpack_keys(keys, rows)) for block, rows, keys in found]
        last = found[-1][0]


def _packed(
    connection: sqlite3.Connection, kind: BlockKind, pages: Iterable[Sequence[tuple[int, Keys]]]
) -> Iterator[tuple[Keys, bytes]]:
    for some in pages:
        for (_, keys), data in zip(some, _contents(connection, kind, [block for block, _ in some]), strict=True):
            yield keys, data


def _pages(items: Sequence[Item], page: int = 64) -> Iterator[Sequence[Item]]:
    """Some at a time, so that a slow consumer holds neither much memory nor a transaction."""
    return (items[start : start + page] for start in range(0, len(items), page))


def _contents(connection: sqlite3.Connection, kind: BlockKind, blocks: Sequence[int]) -> list[bytes]:
    """The packed columns of these blocks, in the order of their ids."""
    found = connection.execute(
        f"SELECT columns FROM {kind.table}_columns WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id",
        (json.dumps(blocks),),
    ).fetchall()
    if len(found) != len(blocks):
        raise StoreError(f"blocks of {kind.table} are missing: restore the run from a copy")
    return [data for (data,) in found]


def read_client(connection: sqlite3.Connection, client: int) -> Iterator[list[Any]]:
    """One client's participations in the order of arrival, each without the client itself."""
    import numpy as np

    kind = PARTICIPATIONS
    heads = connection.execute(f"SELECT id, rows, keys FROM {kind.table} ORDER BY id").fetchall()
    ends = np.cumsum([len(keys) // 8 for _, _, keys in heads])
    clients = np.frombuffer(b"".join(keys for _, _, keys in heads), dtype="<i4")[1::2]  # the upper half of each key
    hits = np.flatnonzero(clients == client)
    inside = np.searchsorted(ends, hits, side="right")
    places = hits - np.concatenate(([0], ends))[inside]
    wanted: dict[int, list[int]] = {}
    for index, place in zip(inside.tolist(), places.tolist(), strict=True):
        wanted.setdefault(index, []).append(place)
    for some in _pages(list(wanted)):
        for index, data in zip(some, _contents(connection, kind, [heads[index][0] for index in some]), strict=True):
            yield from column_reader.unpack_rows(data, heads[index][1], len(kind.sql_types), wanted[index])
