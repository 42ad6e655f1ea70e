"""Disks that fill, vanish, hang or refuse: recording stops with one clear message, and what is there can be read."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from fedvitals.bench import made_up
from fedvitals.bench.kill import kill_after
from fedvitals.errors import StoreError
from fedvitals.store import BackgroundWriter, SQLiteStore
from fedvitals.store.contract import RUN, participation
from fedvitals.vocabulary import Blob, Status

_LIMITED = """
import resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))
import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
sys.path.insert(0, sys.argv[2])
import test_store_trouble
assert test_store_trouble.wrong(test_store_trouble.fill(Path(sys.argv[1]))) == []
"""


class Filled(NamedTuple):
    """What came of writing until the disk was full."""

    told: list[str]
    put: int  # before it was; one more was tried afterwards
    dropped: int
    kept: list[int]  # attempts that can be read


def fill(folder: Path) -> Filled:
    """Write until the disk is full, and once more."""
    told: list[str] = []
    writer = BackgroundWriter(SQLiteStore(folder).create(RUN), queue_bytes=64 << 20, on_trouble=told.append)
    writer.put([made_up.layout(10)], 1)
    put = 0
    while not told:
        assert put < 400, "the disk never filled"
        writer.put([made_up.update_block(put, 10, 8), participation("a", put)], 100_000)
        writer.flush(60)
        put += 1
    assert not writer.put([participation("a", put)], 100)
    assert writer.close(60)
    with closing(SQLiteStore(folder).open("last")) as reader:
        kept = [one.attempt for one in reader.participations()]
    return Filled(told, put, writer.dropped["Participation"], kept)


def wrong(filled: Filled) -> list[str]:
    """What should not be: one message names the file, what was written before can be read, the rest is counted."""
    kept = len(filled.kept)
    right = {
        f"one message: {filled.told}": len(filled.told) == 1,
        f"it names the file: {filled.told}": "run.db" in filled.told[0],
        f"what was lost is counted: {filled.dropped}": filled.dropped >= 2,
        f"what was kept is in order: {filled.kept}": filled.kept == list(range(kept)),
        f"all is kept or counted: {kept} of {filled.put + 1}": kept == filled.put + 1 - filled.dropped > 0,
    }
    return [what for what, so in right.items() if not so]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip("this user cannot mount a small file system; the limit on a file's size is tested instead")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_stops_the_recording(small_disk: Path) -> None:
    """On a full disk recording stops with one message; what was written before can be read."""
    assert wrong(fill(small_disk)) == []


def test_a_file_that_may_not_grow_stops_the_recording(tmp_path: Path) -> None:
    """The same where a limit on the size of files is hit, as quotas do."""
    done = subprocess.run(
        [sys.executable, "-c", _LIMITED, str(tmp_path), str(Path(__file__).parent)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_full_disk_stops_blobs_too(small_disk: Path) -> None:
    """A blob that does not fit stops the recording and leaves no half file."""
    told: list[str] = []
    writer = BackgroundWriter(SQLiteStore(small_disk).create(RUN), queue_bytes=64 << 20, on_trouble=told.append)
    writer.put_blob(os.urandom(4_000_000), 4_000_000, lambda name: Blob(name, "model", 4_000_000))
    assert writer.close(60)
    assert "blob" in told[0]
    assert writer.dropped == {"Blob": 1}
    assert [path for path in small_disk.rglob("*") if path.is_file() and "blobs" in path.parts] == []


def test_a_deleted_folder_stops_the_recording(tmp_path: Path) -> None:
    """A run whose folder is deleted under it is not written into the void."""
    told: list[str] = []
    writer = BackgroundWriter(SQLiteStore(tmp_path).create(RUN), queue_bytes=1 << 20, on_trouble=told.append)
    shutil.rmtree(tmp_path / RUN.id)
    writer.put([participation("a", 0)], 100)
    assert not writer.flush(60)
    assert writer.close(60)
    assert "deleted" in told[0]
    assert writer.dropped == {"Participation": 1}
    assert not (tmp_path / RUN.id).exists()


def test_a_replaced_file_stops_the_recording(tmp_path: Path) -> None:
    """Another file under the same name is not ours: it is left alone."""
    with closing(SQLiteStore(tmp_path).create(RUN)) as journal:
        path = tmp_path / RUN.id / "run.db"
        path.rename(path.with_name("moved.db"))
        path.write_bytes(b"other")
        with pytest.raises(StoreError, match="replaced"):
            journal.append([participation("a", 0)])
        with pytest.raises(StoreError, match="replaced"):
            journal.put_blob(b"x")
    assert path.read_bytes() == b"other"


def test_a_locked_file_stops_the_recording(tmp_path: Path) -> None:
    """When another program holds the lock for longer than the time allowed, recording stops and says so."""
    told: list[str] = []
    store = SQLiteStore(tmp_path, busy_timeout_s=0.05)
    writer = BackgroundWriter(store.create(RUN), queue_bytes=1 << 20, on_trouble=told.append)
    with closing(sqlite3.connect(tmp_path / RUN.id / "run.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        writer.put([participation("a", 0)], 100)
        assert not writer.flush(60)
    assert writer.close(60)
    assert "locked" in told[0]
    assert writer.dropped == {"Participation": 1}


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    """Where no folder can be, creating a run says which, why and what to set; nothing is left."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"file/runs.*FEDVITALS_DIR"):
        SQLiteStore(tmp_path / "file" / "runs").create(RUN)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert SQLiteStore(tmp_path / "file" / "runs").runs() == []


@pytest.mark.parametrize("delay_s", np.random.default_rng(3).uniform(0.0, 0.9, 6).round(3).tolist())
def test_a_killed_process_loses_half_a_second_at_most(delay_s: float) -> None:
    """After kill -9 the run opens, is whole up to the last half second, and is said to be cut off."""
    killed = kill_after(delay_s)
    assert killed.whole
    assert killed.status is Status.CUT_OFF
    assert killed.missing_s <= 0.5
    assert killed.put > 0
