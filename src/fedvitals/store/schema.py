"""The tables of a run's database, derived from the vocabulary, and how an older database is brought up to date.

Records that come by the thousand (participations, spans) are kept in blocks of columns: binding 44 values a row costs
SQLite's module 12 us and a turn of the interpreter lock each, a column of 500 values 2 us a row and one turn for all.
Whatever is rare is a plain row, so that `sqlite3 run.db "select * from failure"` reads well.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from types import NoneType
from typing import get_args, get_type_hints

from fedvitals.errors import StoreError
from fedvitals.vocabulary import Blob, Evaluation, Failure, LogEntry, Participation, ResourceSample, Round, Span

APPLICATION_ID = 0x66_65_64_76  # "fedv": tells a run from any other SQLite file
PAGE_BYTES = 8192  # measured: blocks of 80 KB cost a third less CPU than with 4096, and waste little
ROW_KINDS: tuple[type, ...] = (Round, Evaluation, ResourceSample, LogEntry, Failure, Blob)
BLOCK_KINDS: tuple[type, ...] = (Participation, Span)
TABLES: dict[type, str] = {
    Round: "round",
    Evaluation: "evaluation",
    ResourceSample: "resource",
    LogEntry: "log",
    Failure: "failure",
    Blob: "blob",
    Participation: "participation_block",
    Span: "span_block",
}
SQL_TYPES: dict[type, str] = {int: "INTEGER", float: "REAL", str: "TEXT"}

Step = Callable[[sqlite3.Connection], None]


@cache
def columns(kind: type) -> dict[str, str]:
    """The fields of a named tuple in order, each with its SQL type."""
    return {name: _sql_type(hint) for name, hint in get_type_hints(kind).items()}


@cache
def required(kind: type) -> tuple[str, ...]:
    """The fields that every record of this kind has a value for."""
    return tuple(name for name, hint in get_type_hints(kind).items() if NoneType not in get_args(hint))


def _sql_type(hint: object) -> str:
    options = [option for option in get_args(hint) or (hint,) if option is not NoneType]
    return SQL_TYPES[options[0]]


def _row_table(kind: type) -> str:
    """A plain table. SQLite keeps NaN as NULL, so `nan` names the fields of a row that hold one."""
    key = "number" if kind is Round else ""
    parts = [f'"{name}" {sql_type}{" PRIMARY KEY" if name == key else ""}' for name, sql_type in columns(kind).items()]
    return f"CREATE TABLE {TABLES[kind]} ({', '.join(parts)}, nan TEXT) STRICT"


def _block_table(name: str) -> list[str]:
    """What a block holds (see blocks.py), and apart from that, so that it can be searched quickly, the block itself."""
    return [
        f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, rows INTEGER NOT NULL, low_round INTEGER, high_round INTEGER,"
        " keys BLOB NOT NULL) STRICT",
        f"CREATE INDEX {name}_round ON {name} (low_round, high_round)",
        f"CREATE TABLE {name}_columns (id INTEGER PRIMARY KEY, columns BLOB NOT NULL) STRICT",
    ]


def _first_tables() -> list[str]:
    return [
        "CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID",
        "CREATE TABLE run (one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL, name TEXT NOT NULL,"
        " status TEXT NOT NULL, started_unix_ns INTEGER NOT NULL, level TEXT NOT NULL, ended_ns INTEGER,"
        " config TEXT NOT NULL, environment TEXT NOT NULL, health TEXT NOT NULL) STRICT",
        "CREATE TABLE client (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT",
        "CREATE TABLE layout (id INTEGER PRIMARY KEY, layers TEXT NOT NULL, sketch_buckets TEXT NOT NULL,"
        " unit_layer INTEGER, units INTEGER NOT NULL) STRICT",
        "CREATE TABLE update_block (id INTEGER PRIMARY KEY, round INTEGER NOT NULL, layout INTEGER NOT NULL,"
        " rows INTEGER NOT NULL, kept_steps INTEGER NOT NULL, present INTEGER NOT NULL, loss_steps BLOB,"
        " place INTEGER NOT NULL) STRICT",
        "CREATE INDEX update_block_round ON update_block (round)",
        "CREATE TABLE model_block (version INTEGER PRIMARY KEY, round INTEGER NOT NULL, layout INTEGER NOT NULL,"
        " stats BLOB NOT NULL, nonfinite BLOB, drift_first BLOB NOT NULL, drift_last BLOB NOT NULL,"
        " fingerprint TEXT NOT NULL) STRICT",
        "CREATE TABLE step_block (id INTEGER PRIMARY KEY, round INTEGER NOT NULL, layout INTEGER NOT NULL,"
        " rows INTEGER NOT NULL, fields INTEGER NOT NULL, clients TEXT NOT NULL, attempts TEXT NOT NULL,"
        " steps TEXT NOT NULL, place INTEGER NOT NULL) STRICT",
        "CREATE INDEX step_block_round ON step_block (round)",
        *(_row_table(kind) for kind in ROW_KINDS),
        *(sql for kind in BLOCK_KINDS for sql in _block_table(TABLES[kind])),
    ]


def _create(connection: sqlite3.Connection) -> None:
    for statement in _first_tables():
        connection.execute(statement)


MIGRATIONS: tuple[Step, ...] = (_create,)  # step n takes version n to n + 1; an empty file is version 0
VERSION = len(MIGRATIONS)


def migrate(connection: sqlite3.Connection, steps: Sequence[Step]) -> None:
    """Bring a database up to the last step, all or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for number in range(version_of(connection), len(steps)):
            steps[number](connection)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(steps)}")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


@cache
def empty() -> bytes:
    """A database without records, as a file: copying it takes a tenth of the time that making its tables does."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        migrate(connection, MIGRATIONS)
        return connection.serialize()


def version_of(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def check(connection: sqlite3.Connection, path: Path, newest: int) -> int:
    """The version of this database; refuses what is not ours and what a newer fedvitals wrote."""
    application = int(connection.execute("PRAGMA application_id").fetchone()[0])
    if application != APPLICATION_ID:
        raise StoreError(f"{path} is a database, but not one of fedvitals: give the folder of a recorded run")
    found = version_of(connection)
    if found > newest:
        raise StoreError(
            f"{path} has schema version {found}, this fedvitals reads up to {newest}: upgrade it with "
            "`pip install -U fedvitals`"
        )
    return found
