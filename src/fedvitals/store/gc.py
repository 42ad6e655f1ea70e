"""Making room: which runs and blobs may go (a pure plan), and letting them go."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass

from fedvitals.store.blobs import BlobFolder
from fedvitals.store.folder import UNBORN, SQLiteStore, folder_bytes
from fedvitals.store.journal import BLOBS
from fedvitals.store.protocol import RunReader
from fedvitals.vocabulary import Run, Status

DAY_NS = 86_400 * 10**9
UNBORN_S = 3600.0  # making a run takes milliseconds: what is older than this was given up


@dataclass(frozen=True, slots=True)
class Limits:
    """What may stay. With `keep`, the newest so many runs are safe from the other two limits."""

    keep: int | None = None
    older_than_days: float | None = None
    max_total_bytes: int | None = None
    force: bool = False  # delete runs that are going on, too


@dataclass(frozen=True, slots=True)
class Removal:
    """One thing to delete: a run, or a blob of a run that no record speaks of."""

    run: str
    size_bytes: int
    why: str
    blob: str | None = None


def plan(runs: Iterable[tuple[Run, int]], limits: Limits, now_unix_ns: int) -> list[Removal]:
    """The runs to delete, oldest first, given all runs and their sizes."""
    newest_first = sorted(runs, key=lambda pair: (pair[0].started_unix_ns, pair[0].id), reverse=True)
    total = sum(size for _, size in newest_first)
    exposed = newest_first[limits.keep or 0 :]
    removals: list[Removal] = []
    for run, size in reversed(exposed):
        why = _reason(run, limits, now_unix_ns, total)
        if why and (limits.force or run.status is not Status.RUNNING):
            removals.append(Removal(run.id, size, why))
            total -= size
    return removals


def _reason(run: Run, limits: Limits, now_unix_ns: int, total: int) -> str:
    days = (now_unix_ns - run.started_unix_ns) / DAY_NS
    if limits.older_than_days is not None and days > limits.older_than_days:
        return f"{days:.0f} days old, older than {limits.older_than_days:g}"
    if limits.max_total_bytes is not None and total > limits.max_total_bytes:
        return f"all runs take {total / 1e6:,.0f} MB, more than {limits.max_total_bytes / 1e6:,.0f}"
    if limits.keep is not None and limits.older_than_days is None and limits.max_total_bytes is None:
        return f"not one of the newest {limits.keep}"
    return ""


def unreferenced(reader: RunReader, kept: Sequence[tuple[str, int]]) -> list[Removal]:
    """Blobs of a run, of those kept (name, size), that no record speaks of. None while it is going on: a blob is
    written before its record."""
    run = reader.run()
    if run.status is Status.RUNNING:
        return []
    known = {blob.name for blob in reader.blobs()}
    return [Removal(run.id, size, "no record speaks of it", name) for name, size in kept if name not in known]


def collect(store: SQLiteStore, limits: Limits, now_unix_ns: int, *, dry_run: bool = False) -> list[Removal]:
    """Plan and, unless `dry_run`, delete; gives what was or would be deleted, with the bytes it frees."""
    runs = store.runs()
    removals = plan([(run, store.size_bytes(run.id)) for run in runs], limits, now_unix_ns)
    going = {removal.run for removal in removals}
    for run in runs:
        if run.id not in going:
            removals += _stray_blobs(store, run.id)
    removals += _unborn(store, now_unix_ns)
    return removals if dry_run else [removal for removal in removals if _deleted(store, removal)]


def _unborn(store: SQLiteStore, now_unix_ns: int) -> list[Removal]:
    why = "its process was killed as the run began"
    names = store.unborn(UNBORN_S, now_unix_ns / 1e9)
    return [Removal(name, folder_bytes(store.root / name), why) for name in names]


def _stray_blobs(store: SQLiteStore, run_id: str) -> list[Removal]:
    folder = BlobFolder(store.root / run_id / BLOBS)
    kept = [(name, path.stat().st_size) for name, path in folder.files()]
    if not kept:
        return []
    with closing(store.open(run_id)) as reader:
        return unreferenced(reader, kept)


def _deleted(store: SQLiteStore, removal: Removal) -> bool:
    if removal.run.startswith(UNBORN):
        store.delete_unborn(removal.run)
    elif removal.blob is None:
        store.delete(removal.run)
    else:
        BlobFolder(store.root / removal.run / BLOBS).path_of(removal.blob).unlink(missing_ok=True)
    return True
