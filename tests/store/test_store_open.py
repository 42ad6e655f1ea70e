"""Opening runs: damaged, foreign, old, new, read-only, and the settings that say where they are."""

from __future__ import annotations

import importlib.util
import math
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from fedvitals.errors import MissingExtraError, SettingsError, StoreError
from fedvitals.settings import Settings
from fedvitals.store import SQLiteStore, connection, open_store, schema
from fedvitals.store.contract import RUN, participation
from fedvitals.vocabulary import Run, Status

FINISHED = Run("done", "digits", Status.FINISHED, 5)
_READ_AS_NOBODY = """
import os, sys
from pathlib import Path
from fedvitals.store import SQLiteStore  # as root: the code may lie where nobody else may look
import fedvitals.store.blocks, fedvitals.store.columns, numpy, tempfile, json, psutil
os.setgid(65534); os.setuid(65534)
store = SQLiteStore(Path(sys.argv[1]))
print(len(store.open("last").participations()))
"""


def finished(root: Path, rows: int = 3) -> Path:
    """A closed run; gives its database."""
    with closing(SQLiteStore(root).create(FINISHED)) as journal:
        journal.append([participation("a", attempt) for attempt in range(rows)])
    return root / FINISHED.id / "run.db"


def listing(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_closed_run_is_one_file_and_reading_leaves_no_trace(tmp_path: Path) -> None:
    """After close there is no log beside the database, and readers neither change nor add a file."""
    finished(tmp_path)
    before = listing(tmp_path)
    assert list(before) == ["done/run.db"]
    with closing(SQLiteStore(tmp_path).open("last")) as reader:
        assert len(reader.participations()) == 3
        assert listing(tmp_path) == before
    assert listing(tmp_path) == before


def test_a_run_closed_under_a_reader_is_whole_in_its_file(tmp_path: Path) -> None:
    """Closing folds the log into the file though a reader is still there: the file alone can be copied."""
    store = SQLiteStore(tmp_path / "runs")
    journal = store.create(RUN)
    with closing(store.open("last")) as reader:
        journal.append([participation("a", attempt) for attempt in range(3)])
        assert len(reader.participations()) == 3
        journal.close()
        (tmp_path / "copy" / RUN.id).mkdir(parents=True)
        shutil.copyfile(tmp_path / "runs" / RUN.id / "run.db", tmp_path / "copy" / RUN.id / "run.db")
    with closing(SQLiteStore(tmp_path / "copy").open("last")) as copy:
        assert len(copy.participations()) == 3


def test_looking_for_runs_makes_nothing(tmp_path: Path) -> None:
    """Listing and opening where there is nothing makes no folder and no file."""
    store = SQLiteStore(tmp_path / "none")
    assert store.runs() == []
    assert store.damaged() == []
    with pytest.raises(StoreError, match="no runs"):
        store.open("last")
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreError, match=r"run\.db is missing"):
        connection.open_reader(tmp_path / "empty" / "run.db")
    assert listing(tmp_path) == {}
    assert not (tmp_path / "none").exists()


def not_a_database(path: Path) -> None:
    path.write_bytes(b"this is no database" * 1000)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20_000])


def scrambled(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[8192:] = os.urandom(len(data) - 8192)
    path.write_bytes(bytes(data))


def misspelt(path: Path) -> None:
    """One letter of a table's definition, of which SQLite's message then quotes what is no text."""
    data = path.read_bytes()
    assert data.count(b"CREATE TABLE meta") == 1
    path.write_bytes(data.replace(b"CREATE TABLE meta", b"CREATE TAB\xb1E meta"))


def foreign(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE mine (x)")


@pytest.mark.parametrize("damage", [not_a_database, empty, torn, scrambled, misspelt, foreign])
def test_a_damaged_run_is_named_and_does_not_hide_the_others(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    """A run that cannot be read is an error with its path, is listed as damaged, can be deleted; others are listed."""
    path = finished(tmp_path)
    damage(path)
    store = SQLiteStore(tmp_path)
    store.create(RUN).close()
    with pytest.raises(StoreError, match=r"done.run\.db"), closing(store.open("done")) as reader:
        reader.run()
    assert [run.id for run in store.runs()] == [RUN.id]
    ((name, reason),) = store.damaged()
    assert name == "done"
    assert str(path) in reason
    assert store.delete("done") > 0 or damage is empty
    assert store.damaged() == []


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE participation_block_columns SET columns = zeroblob(50)",
        "UPDATE participation_block_columns SET columns = substr(columns, 1, length(columns) - 1)",
        "UPDATE participation_block SET rows = 1000000",
        "UPDATE participation_block SET keys = x'00'",
        "UPDATE participation_block SET rows = 2, keys = substr(keys, 1, 16)",
        "DELETE FROM participation_block_columns",
        "DELETE FROM client",
    ],
)
def test_damaged_blocks_are_an_error_that_names_the_run(tmp_path: Path, statement: str) -> None:
    """Blocks that do not fit together are refused when read, with a StoreError and nothing else."""
    path = finished(tmp_path)
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA journal_mode = DELETE")
        other.execute(statement)
        other.commit()
    with closing(SQLiteStore(tmp_path).open("done")) as reader, pytest.raises(StoreError, match="copy"):
        reader.participations()


def test_a_row_without_what_every_row_has_is_an_error(tmp_path: Path) -> None:
    """Somebody emptied a field by hand: the error names the run, the table and the field; NaN is no such hole."""
    path = finished(tmp_path)
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA journal_mode = DELETE")
        other.execute("INSERT INTO failure (at_ns, stage, kind) VALUES (NULL, 'train', 'ValueError')")
        other.execute("INSERT INTO evaluation (round, at_ns, loss, split, nan) VALUES (0, 1, NULL, 'test', 'loss')")
        other.commit()
    with closing(SQLiteStore(tmp_path).open("done")) as reader:
        with pytest.raises(StoreError, match=r"run\.db cannot be read .*failure has no at_ns.*copy"):
            reader.failures()
        assert [math.isnan(one.loss or 0.0) for one in reader.evaluations()] == [True]


def test_a_newer_database_is_refused(tmp_path: Path) -> None:
    """What a newer fedvitals wrote is refused with the path, its version and ours."""
    path = finished(tmp_path)
    with closing(sqlite3.connect(path)) as other:
        other.execute(f"PRAGMA user_version = {schema.VERSION + 3}")
    with pytest.raises(StoreError, match=rf"run\.db.*{schema.VERSION + 3}.*{schema.VERSION}.*upgrade"):
        SQLiteStore(tmp_path).open("done")


def add_column(database: sqlite3.Connection) -> None:
    database.execute("ALTER TABLE round ADD COLUMN mood TEXT")


def test_an_older_database_is_read_through_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older run is brought up to date for its reader and left as it is on disk."""
    path = finished(tmp_path)
    before = path.read_bytes()
    steps = (*schema.MIGRATIONS, add_column)
    monkeypatch.setattr(schema, "MIGRATIONS", steps)
    monkeypatch.setattr(schema, "VERSION", len(steps))
    with closing(SQLiteStore(tmp_path).open("done")) as reader:
        assert len(reader.participations()) == 3
        assert reader._rows("SELECT mood FROM round") == []
    assert path.read_bytes() == before


def test_migrations_take_any_version_up_and_stop_whole(tmp_path: Path) -> None:
    """From an empty file or from each version a database comes up; a step that fails leaves it as it was."""

    def fail(database: sqlite3.Connection) -> None:
        database.execute("CREATE TABLE half (x)")
        raise ValueError("no")

    with closing(sqlite3.connect(tmp_path / "old.db", isolation_level=None)) as database:
        schema.migrate(database, schema.MIGRATIONS)
        assert schema.version_of(database) == schema.VERSION
        with pytest.raises(ValueError, match="no"):
            schema.migrate(database, (*schema.MIGRATIONS, add_column, fail))
        assert schema.version_of(database) == schema.VERSION
        names = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        assert "half" not in names
        schema.migrate(database, (*schema.MIGRATIONS, add_column))
        assert schema.version_of(database) == schema.VERSION + 1
        assert database.execute("SELECT mood FROM round").fetchall() == []
        assert schema.check(database, tmp_path, schema.VERSION + 1) == schema.VERSION + 1


def test_tables_follow_the_vocabulary(tmp_path: Path) -> None:
    """Each plain table has the fields of its record, in order, and every table is STRICT."""
    path = finished(tmp_path)
    with closing(sqlite3.connect(path)) as database:
        for kind in schema.ROW_KINDS:
            found = [row[1] for row in database.execute(f"PRAGMA table_info({schema.TABLES[kind]})")]
            assert found == [*kind._fields, "nan"]  # type: ignore[attr-defined]  # every kind is a named tuple
        ours = [row for row in database.execute("PRAGMA table_list") if not row[1].startswith("sqlite_")]
        assert len(ours) > 10
        assert all(strict for *_, strict in ours)


def nobody_reads(root: Path) -> str:
    done = subprocess.run([sys.executable, "-c", _READ_AS_NOBODY, str(root)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become a user who may not write")
@pytest.mark.parametrize("kept", ["closed", "log and shared memory", "log alone"])
def test_a_read_only_copy_is_read(kept: str) -> None:
    """A run in a folder that may not be written is read whole, even with commits that are only in its log."""
    with tempfile.TemporaryDirectory() as name:  # not pytest's folder, into which nobody else may look
        root = Path(name)
        root.chmod(0o755)
        store = SQLiteStore(root / "live")
        journal = store.create(RUN)
        journal.append([participation("a", attempt) for attempt in range(3)])
        if kept == "closed":
            journal.close()
        shutil.copytree(root / "live", root / "copy")
        journal.close()
        if kept == "log alone":
            (root / "copy" / RUN.id / "run.db-shm").unlink()
        for path in (root / "copy").rglob("*"):
            path.chmod(0o555 if path.is_dir() else 0o444)
        before = listing(root / "copy")
        assert nobody_reads(root / "copy") == "3"
        assert listing(root / "copy") == before


def test_a_run_that_has_just_begun_is_read_live(tmp_path: Path) -> None:
    """A reader opened before the first append sees what comes after."""
    store = SQLiteStore(tmp_path)
    with closing(store.create(RUN)) as journal, closing(store.open("last")) as reader:
        journal.append([participation("a", 0)])
        assert len(reader.participations()) == 1


def test_an_unfinished_run_does_not_show(tmp_path: Path) -> None:
    """A folder that is just being made, links and foreign folders are no runs."""
    finished(tmp_path)
    shutil.copytree(tmp_path / "done", tmp_path / ".new-x-1")
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "done")
    store = SQLiteStore(tmp_path)
    assert [run.id for run in store.runs()] == ["done"]
    assert store.damaged() == []
    with pytest.raises(StoreError, match="no run 'link'"):
        store.delete("link")


def test_settings_name_the_store(tmp_path: Path) -> None:
    """The folder comes from `dir`; a URL that is no store of ours is refused without showing its password."""
    store = open_store(Settings(dir=str(tmp_path)))
    assert isinstance(store, SQLiteStore)
    assert store.root == tmp_path
    with pytest.raises(SettingsError, match="mysql") as caught:
        open_store(Settings(store="mysql://me:secret@host/x"))
    assert "secret" not in str(caught.value)
    with pytest.raises(SettingsError, match="postgresql://"):
        open_store(Settings(store="somewhere"))
    missing = importlib.util.find_spec("psycopg") is None
    with pytest.raises(MissingExtraError if missing else StoreError, match="PostgreSQL"):
        open_store(Settings(store="postgresql://host/x"))
