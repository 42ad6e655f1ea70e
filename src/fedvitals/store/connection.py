"""Opening a run's database: for the one writer, or for a reader that leaves no trace."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from fedvitals.errors import StoreError
from fedvitals.store import schema

CHECKPOINT_PAGES = 2000  # 16 MB: pages that change often are copied into the file once, not at every commit
CACHE_KB = 8000
_MAX_VALUE_BYTES = 1 << 28  # of one row: far above any block, and no danger to memory
_BROKEN = (sqlite3.Error, UnicodeDecodeError)  # SQLite's message may quote what the file has instead of text


def open_writer(path: Path, busy_timeout_s: float, *, unborn: bool = False) -> sqlite3.Connection:
    """For the journal. A commit reaches the operating system, so a killed process loses nothing that was committed;
    only checkpoints wait for the disk. An `unborn` run is nobody's loss, and has no readers: it needs no log."""
    if unborn:
        path.write_bytes(schema.empty())
    connection = sqlite3.connect(
        path, isolation_level=None, timeout=busy_timeout_s, check_same_thread=False, cached_statements=64
    )
    for pragma in (
        f"page_size = {schema.PAGE_BYTES}",
        f"journal_mode = {'MEMORY' if unborn else 'WAL'}",
        f"synchronous = {'OFF' if unborn else 'NORMAL'}",
        f"wal_autocheckpoint = {CHECKPOINT_PAGES}",
        f"cache_size = -{CACHE_KB}",
        "secure_delete = OFF",
        "temp_store = MEMORY",
    ):
        _run(connection, f"PRAGMA {pragma}")
    return connection


def _run(connection: sqlite3.Connection, statement: str) -> None:
    try:
        connection.execute(statement)
    except BaseException:
        connection.close()
        raise


def open_reader(path: Path) -> sqlite3.Connection:
    """For reading; never makes or changes a run. What an older fedvitals wrote is brought up to date in a copy."""
    if not path.is_file():
        raise StoreError(f"there is no run at {path.parent}: its database {path.name} is missing")
    try:
        connection = _connect(path)
    except _BROKEN as error:
        raise unreadable(path, error) from error
    try:
        if schema.check(connection, path, schema.VERSION) == schema.VERSION:
            return connection
        with closing(connection):
            return _upgraded(connection)
    except _BROKEN as error:
        connection.close()
        raise unreadable(path, error) from error
    except StoreError:
        connection.close()
        raise


def unreadable(path: Path, error: Exception) -> StoreError:
    return StoreError(
        f"{path} cannot be read as a run ({error}): restore it from a copy, or delete the folder {path.parent}"
    )


def _connect(path: Path) -> sqlite3.Connection:
    if not _has_log(path):
        still = _opened(path, "immutable=1")
        if not _is_going_on(still):
            return still
        still.close()
    try:
        return _opened(path, "mode=ro")
    except sqlite3.OperationalError:  # no shared memory beside it: a read-only medium, or a foreign file system
        return _copied(path) if _has_log(path) else _opened(path, "immutable=1")


def _has_log(path: Path) -> bool:
    """Whether there are commits beside the file. Without any, nobody is writing and nothing need be locked."""
    log = path.with_name(path.name + "-wal")
    return log.is_file() and log.stat().st_size > 0


def _opened(path: Path, options: str) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?{options}", uri=True, check_same_thread=False, timeout=5.0)
    try:
        return _bounded(connection)
    except BaseException:
        connection.close()
        raise


def _bounded(connection: sqlite3.Connection) -> sqlite3.Connection:
    """The file may come from anywhere: nothing in it may run, and no value may eat the memory."""
    connection.isolation_level = None
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # the first look at the file
    return connection


def _is_going_on(connection: sqlite3.Connection) -> bool:
    """A run that has just begun may have no log yet; seen as unchanging, it would stand still for this reader."""
    try:
        found = connection.execute("SELECT status FROM run").fetchone()
    except sqlite3.Error:
        return False
    return found is not None and found[0] == "running"


def _copied(path: Path) -> sqlite3.Connection:
    """The file and its log together, as they were at this moment."""
    with tempfile.TemporaryDirectory(prefix="fedvitals-") as folder:
        for name in (path.name, path.name + "-wal"):
            shutil.copyfile(path.with_name(name), Path(folder) / name)
        with closing(sqlite3.connect(Path(folder) / path.name)) as copy:
            return _duplicate(copy)


def _upgraded(connection: sqlite3.Connection) -> sqlite3.Connection:
    copy = _duplicate(connection)
    schema.migrate(copy, schema.MIGRATIONS)
    return copy


def _duplicate(source: sqlite3.Connection) -> sqlite3.Connection:
    copy = sqlite3.connect("", check_same_thread=False)  # a temporary file of SQLite's, gone with the connection
    source.backup(copy)
    return _bounded(copy)
