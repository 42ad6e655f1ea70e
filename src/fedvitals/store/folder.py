"""The embedded store: a folder of runs, each a folder of its own that can be copied, zipped and sent."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from fedvitals.errors import StoreError
from fedvitals.store import names
from fedvitals.store.journal import DATABASE, SQLiteJournal
from fedvitals.store.reader import SQLiteReader
from fedvitals.vocabulary import Run

UNBORN = ".new-"  # a folder that is being made into a run


class SQLiteStore:
    """Runs under one folder. Nothing is made before the first run begins."""

    def __init__(self, root: Path, busy_timeout_s: float = 5.0) -> None:
        self.root = root
        self._busy_timeout_s = busy_timeout_s

    def create(self, run: Run) -> SQLiteJournal:
        """Begin a run. It appears in the folder whole, with its record, or not at all."""
        names.check_name(run.id, "id")
        names.check_name(run.name, "name")
        staging = self.root / f"{UNBORN}{run.id}-{os.getpid()}"
        final = self.root / run.id
        try:
            staging.mkdir(parents=True)
            with closing(SQLiteJournal(staging, unborn=True)) as journal:
                journal.append([run])
            os.rename(staging, final)
            return SQLiteJournal(final, self._busy_timeout_s)
        except (OSError, sqlite3.Error) as error:
            if final.exists() and staging.exists():
                raise StoreError(f"there is a run {run.id!r} in {self.root} already: give another id") from error
            reason = getattr(error, "strerror", None) or error
            raise StoreError(
                f"no run can be recorded in {self.root} ({reason}): FEDVITALS_DIR names another folder"
            ) from error
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def open(self, run_id: str) -> SQLiteReader:
        """A run by its id, the start of it, its name (the newest so named), or `last`."""
        if run_id in self._ids():
            return SQLiteReader(self.root / run_id)
        return SQLiteReader(self.root / names.find(run_id, self.runs(), str(self.root)))

    def runs(self) -> list[Run]:
        """All runs, newest first; damaged ones are left out here and named by `damaged`."""
        found = [run for _, run in self._looked_at() if isinstance(run, Run)]
        return sorted(found, key=lambda run: (run.started_unix_ns, run.id), reverse=True)

    def damaged(self) -> list[tuple[str, str]]:
        """Runs that could not be read: id and reason."""
        return [(name, str(error)) for name, error in self._looked_at() if isinstance(error, StoreError)]

    def delete(self, run_id: str) -> int:
        """Remove a run, damaged ones too; gives the bytes that were freed."""
        names.check_name(run_id, "id")
        if run_id not in self._ids():
            raise StoreError(f"there is no run {run_id!r} in {self.root} to delete")
        folder = self.root / run_id
        freed = folder_bytes(folder)
        try:
            shutil.rmtree(folder)
        except OSError as error:
            raise StoreError(f"{folder} could not be deleted: {error.strerror or error}") from error
        return freed

    def unborn(self, older_than_s: float, now_s: float) -> list[str]:
        """Names of folders that were being made into a run so long ago that whoever made them was killed."""
        return [path.name for path in sorted(self.root.glob(f"{UNBORN}*")) if _age_s(path, now_s) > older_than_s]

    def delete_unborn(self, name: str) -> None:
        shutil.rmtree(self.root / name, ignore_errors=True)

    def size_bytes(self, run_id: str) -> int:
        """What a run takes on disk, without opening it."""
        names.check_name(run_id, "id")
        return folder_bytes(self.root / run_id)

    def _looked_at(self) -> Iterator[tuple[str, Run | StoreError]]:
        for name in self._ids():
            try:
                with closing(SQLiteReader(self.root / name)) as reader:
                    yield name, reader.run()
            except StoreError as error:
                yield name, error

    def _ids(self) -> list[str]:
        """Names of the folders that hold a run; what starts with a dot is being made or deleted."""
        try:
            entries = sorted(os.listdir(self.root))
        except OSError:
            return []
        return [name for name in entries if not name.startswith(".") and self._is_run(self.root / name)]

    @staticmethod
    def _is_run(folder: Path) -> bool:
        return (folder / DATABASE).is_file() and not folder.is_symlink()


def _age_s(folder: Path, now_s: float) -> float:
    """Since something was last made or renamed in it; a link or a folder that has just gone is of no age."""
    try:
        return now_s - folder.stat().st_mtime if folder.is_dir() and not folder.is_symlink() else 0.0
    except OSError:
        return 0.0


def folder_bytes(folder: Path) -> int:
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            with suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_size
    return total
