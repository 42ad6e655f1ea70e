"""Participations and spans as blocks of rows: how the journal writes them and a reader finds them.

A block's `keys` hold one 64-bit number a row: for a span its id, for a participation the number of its client and the
attempt. They can be searched without unpacking the rest: one client's history is a scan of 8 bytes a participation. A
record that is written again takes the place it had, so the order of arrival stays.
"""

# ruff: noqa: S608  (table and column names are constants of ours; values are bound)

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fedvitals.errors import StoreError
from fedvitals.store import columns
from fedvitals.store.schema import TABLES
from fedvitals.store.schema import columns as fields_of
from fedvitals.store.seen import Seen
from fedvitals.vocabulary import Participation, Span

BLOCK_ROWS = 512
FULL_ROWS = 64  # a smaller last block is written again with more rows, so that a slow run has few blocks
_LOW_BITS = 0xFFFF_FFFF
_LOW_63_BITS = (1 << 63) - 1

Row = tuple[Any, ...]


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


def participation_keys(clients: Sequence[int], rows: Sequence[Row]) -> list[int]:
    """The number of the client and the low 32 bits of the attempt."""
    return [client << 32 | row[1] & _LOW_BITS for client, row in zip(clients, rows, strict=True)]


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

    def _store(self, block: int, keys: Sequence[int], fields: Sequence[columns.Column]) -> None:
        rounds = _extremes(fields[self._kind.round_field])
        packed = columns.pack(fields, self._kind.sql_types)
        self._connection.execute(
            f"INSERT OR REPLACE INTO {self._kind.table} VALUES (?, ?, ?, ?, ?, ?)",
            (block, len(keys), *rounds, pack_keys(keys), packed),
        )

    def _replace_before(self, block: int, late: dict[tuple[int, Any], Row]) -> int:
        """Replace, and strike off, those that are in the block before this one; gives its id, 0 if there is none."""
        found = self._connection.execute(
            f"SELECT id, rows, keys, columns FROM {self._kind.table} WHERE id < ? ORDER BY id DESC LIMIT 1", (block,)
        ).fetchone()
        if found is None:
            return 0
        number, count, keys = int(found[0]), int(found[1]), unpack_keys(found[2], found[1])
        if not {key for key, _ in late}.isdisjoint(keys):
            rows = list(zip(*columns.unpack(found[3], count, len(self._kind.sql_types)), strict=True))
            skipped = self._kind.skipped
            changed = [late.pop((key, row[0]), (None,) * skipped + row) for key, row in zip(keys, rows, strict=True)]
            self._store(number, keys, list(zip(*changed, strict=True))[skipped:])
        return number


def _extremes(rounds: columns.Column) -> tuple[int | None, int | None]:
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


def read_blocks(
    connection: sqlite3.Connection, kind: BlockKind, round: int | None = None
) -> Iterator[tuple[tuple[int, ...], list[columns.Column]]]:
    """Keys and columns (but the skipped) of all blocks, or of those that may hold this round."""
    after = 0
    while True:
        found = connection.execute(
            f"SELECT id, rows, keys, columns FROM {kind.table} WHERE id > ?1"
            " AND (?2 IS NULL OR low_round <= ?2 AND high_round >= ?2) ORDER BY id LIMIT 16",
            (after, None if round is None else clamped(round)),
        ).fetchall()
        if not found:
            return
        for _, count, keys, data in found:
            yield unpack_keys(keys, count), columns.unpack(data, count, len(kind.sql_types))
        after = found[-1][0]


def read_client(connection: sqlite3.Connection, client: int) -> Iterator[list[columns.Column]]:
    """One client's participations in the order of arrival: the columns (but the client) of some rows at a time."""
    import numpy as np

    table, width = PARTICIPATIONS.table, len(PARTICIPATIONS.sql_types)
    heads = connection.execute(f"SELECT id, keys FROM {table} ORDER BY id").fetchall()
    ends = np.cumsum([len(keys) // 8 for _, keys in heads])
    clients = np.frombuffer(b"".join(keys for _, keys in heads), dtype="<i4")[1::2]  # the upper half of each key
    hits = np.flatnonzero(clients == client)
    blocks = np.searchsorted(ends, hits, side="right")
    for block in np.unique(blocks).tolist():
        places = hits[blocks == block] - (ends[block - 1] if block else 0)
        count, data = connection.execute(
            f"SELECT rows, columns FROM {table} WHERE id = ?", (heads[block][0],)
        ).fetchone()
        yield columns.unpack(data, count, width, places.tolist())
