"""The small parts of the store: status, names, blobs, plain values, rows and packed arrays."""

from __future__ import annotations

import math
import os
import platform
import sqlite3
import subprocess
import sys
import tracemalloc
import zlib
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from fedvitals.errors import StoreError
from fedvitals.store import SQLiteStore, direct, packing, schema
from fedvitals.store.arrays import ARRAYS, ArrayReader, ArrayWriter
from fedvitals.store.awkward import same
from fedvitals.store.blobs import BlobFolder
from fedvitals.store.contract import LAYOUT, RUN
from fedvitals.store.direct import LARGE
from fedvitals.store.journal import BadRecordError
from fedvitals.store.names import check_name
from fedvitals.store.plain import plain, to_json
from fedvitals.store.rows import to_row
from fedvitals.store.status import settled
from fedvitals.vocabulary import Evaluation, Failure, ModelBlock, Run, Status, StepBlock, UpdateBlock

SECOND = 10**9
HERE = {"host": platform.node(), "pid": psutil.Process().pid, "process_started": psutil.Process().create_time()}


@pytest.mark.parametrize(
    ("environment", "heard_s_ago", "status"),
    [
        (HERE, None, Status.RUNNING),
        (HERE, 99, Status.RUNNING),
        (HERE | {"process_started": HERE["process_started"] - 60}, 0, Status.CUT_OFF),  # the number was given again
        (HERE | {"pid": 2**22 + 5}, 0, Status.CUT_OFF),
        (HERE | {"pid": -1}, 0, Status.CUT_OFF),
        (HERE | {"pid": 10**30}, 0, Status.CUT_OFF),
        ({"host": "elsewhere", "pid": 1}, 9, Status.RUNNING),
        ({"host": "elsewhere", "pid": 1}, 11, Status.CUT_OFF),
        ({"host": "elsewhere", "pid": 1}, None, Status.CUT_OFF),
        ({}, 1, Status.RUNNING),
    ],
)
def test_the_status_is_found_out(environment: dict[str, Any], heard_s_ago: int | None, status: Status) -> None:
    """On this machine the process decides, with its start; elsewhere the time since it was last heard of."""
    now = 1000 * SECOND
    heard = None if heard_s_ago is None else now - heard_s_ago * SECOND
    assert settled(replace(RUN, environment=environment), heard, now).status is status


def test_an_ended_run_stays_ended() -> None:
    """Nothing is found out about a run that says how it ended."""
    ended = Run("a", "a", Status.FAILED, 0, environment=HERE | {"pid": 2**22 + 5})
    assert settled(ended, None, 0) is ended


def test_a_killed_process_that_nobody_buried_is_dead() -> None:
    """A zombie still has its number and start, and is gone all the same."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        process = psutil.Process(child.pid)
        environment = {"host": platform.node(), "pid": child.pid, "process_started": process.create_time()}
        assert settled(replace(RUN, environment=environment), None).status is Status.RUNNING
        child.kill()
        while process.status() != psutil.STATUS_ZOMBIE:
            pass
        assert settled(replace(RUN, environment=environment), None).status is Status.CUT_OFF


def test_names_are_checked_too(tmp_path: Path) -> None:
    """A run's name follows the same rule as its id, and the message says what is right."""
    with pytest.raises(StoreError, match=r"'my run' cannot be the name of a run: use letters"):
        SQLiteStore(tmp_path).create(replace(RUN, name="my run"))
    check_name("mnist-fedavg_2.1", "name")
    check_name("last", "name")
    with pytest.raises(StoreError) as caught:
        check_name("x" * 10_000, "id")
    assert len(str(caught.value)) < 500


def test_blobs_are_verified(tmp_path: Path) -> None:
    """A changed blob is refused, a missing one named; a half-written one is no blob."""
    folder, weights = BlobFolder(tmp_path), b"weights" * 100_000
    name, added = folder.put(weights)
    assert added == 700_000
    assert folder.put(weights) == (name, 0)
    path = folder.path_of(name)
    (path.parent / (path.name + ".1.partial")).write_bytes(b"wei")
    assert [found for found, _ in folder.files()] == [name]
    assert folder.size_bytes() == 700_000
    path.write_bytes(b"WEIGHTS" * 100_000)
    with pytest.raises(StoreError, match="damaged"):
        folder.get(name)
    path.unlink()
    with pytest.raises(StoreError, match=r"missing.*whole folder"):
        folder.get(name)


class Broken:
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Array:
    def item(self) -> int:
        raise ValueError("more than one value")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (1 << 5000, hex(1 << 5000)),
        ({1: {"a"}}, {"1": ["a"]}),
        (Broken(), "<Broken: RuntimeError>"),
        (Path("x/y"), "x/y"),
        (Status.RUNNING, "running"),
    ],
)
def test_anything_becomes_plain(value: Any, expected: Any) -> None:
    """Numbers of numpy become Python's, the rest text, and nothing raises."""
    assert plain(value) == expected
    assert isinstance(to_json(value), str)


def test_deep_values_end() -> None:
    """A value that holds itself is cut off at some depth."""
    endless: list[Any] = []
    endless.append(endless)
    assert "..." in to_json(endless)
    assert isinstance(to_json(Array()), str)


def test_odd_values_become_the_nearest_that_a_table_keeps() -> None:
    """Numbers beyond 64 bits are clamped, half characters escaped, NaN named, numpy's numbers taken."""
    row = to_row(Evaluation(1 << 80, np.int64(3), "a\ud800", None, True, math.nan, np.float32(0.5)))  # type: ignore[arg-type]  # odd on purpose
    assert row == ((1 << 63) - 1, 3, "a\\ud800", None, 1, pytest.approx(math.nan, nan_ok=True), 0.5, None, "loss")


def test_a_record_of_another_kind_is_refused(tmp_path: Path) -> None:
    """What is no record, or holds what its field cannot, is a bad record, and the journal goes on."""
    with closing(SQLiteStore(tmp_path).create(RUN)) as journal:
        odd: list[Any] = ["text", Failure("noon", "train", "x", "y")]  # type: ignore[arg-type]  # wrong on purpose
        for bad in odd:
            with pytest.raises(BadRecordError):
                journal.append([bad])
        journal.append([Failure(1, "train", "x", "y")])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sketches": np.zeros((2, 9), np.float16)}, "sketches"),
        ({"unit_norms": np.zeros((1, 2), np.float16)}, "unit_norms"),
        ({"losses": np.zeros((2, 3), np.float32), "loss_steps": np.zeros((2, 2), np.int32)}, "loss_steps"),
        ({"layout": 2}, "layout 2"),
    ],
)
def test_blocks_that_could_not_be_read_back_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    """Arrays must have the shapes that their layout says."""
    block = replace(UpdateBlock(1, 0, 1, np.zeros((2, 2, 6), np.float32)), **change)
    with closing(SQLiteStore(tmp_path).create(RUN)) as journal:
        journal.append([LAYOUT])
        with pytest.raises(BadRecordError, match=message):
            journal.append([block])


def test_statistics_without_a_layout_are_refused(tmp_path: Path) -> None:
    """Blocks whose layout was never written could not be read: they are refused, of whatever kind."""
    stats = np.zeros((1, 2, 6), np.float32)
    with closing(SQLiteStore(tmp_path).create(RUN)) as journal:
        for block in (
            UpdateBlock(1, 0, 9, stats),
            ModelBlock(1, 0, 9, stats[0], None, 0.0, 0.0, ""),
            StepBlock(0, 9, ("a",), (0,), (0,), stats),
        ):
            with pytest.raises(BadRecordError, match=f"{type(block).__name__} names layout 9"):
                journal.append([block])


def test_a_layout_that_was_not_kept_is_not_relied_on(tmp_path: Path) -> None:
    """After an append that failed as a whole, what it said of layouts is forgotten."""
    block = UpdateBlock(1, 0, 1, np.zeros((2, 2, 6), np.float32))
    with closing(SQLiteStore(tmp_path).create(RUN)) as journal:
        with pytest.raises(BadRecordError, match="sketches"):
            journal.append([LAYOUT, replace(block, sketches=np.zeros((2, 9), np.float16))])
        with pytest.raises(BadRecordError, match="layout 1"):
            journal.append([block])


@pytest.mark.parametrize(
    ("steps", "most"),
    [
        ([[0, 1, 2, 3]] * 4, 17),
        ([[0, 1, 2, 3], [0, 1, -1, -1], [-1, -1, -1, -1], [0, 1, 2, -1]], 17),
        ([[0, 1, 2, 900], [0, 1, 2, -1], [5, 4, 3, 2], [-(2**31), 2**31 - 1, 0, 7]], 100),
    ],
)
def test_kept_steps_are_small_and_exact(steps: list[list[int]], most: int) -> None:
    """Rows that are alike or count up take 4 bytes a row or column; any others come back as well."""
    array = np.array(steps, dtype=np.int32)
    block = UpdateBlock(1, 0, 1, np.zeros((4, 2, 6), np.float32), losses=np.zeros((4, 4), np.float32), loss_steps=array)
    row, arrays = packing.update_parts(block, LAYOUT)
    assert len(row[-1]) <= most
    data = b"".join(array.tobytes() for array in arrays)
    found = packing.update_from((*row, 0), LAYOUT, lambda place, size: data[place : place + size]).loss_steps
    assert found is not None
    assert np.array_equal(found, array)


def test_packed_arrays_are_verified() -> None:
    """Rows and bytes that do not fit together, a bomb among them, are refused."""
    stats, losses = np.zeros((2, 2, 6), np.float32), np.zeros((2, 3), np.float32)
    row, arrays = packing.update_parts(UpdateBlock(1, 0, 1, stats, losses=losses), LAYOUT)
    good = [*row, 0]
    data = b"".join(array.tobytes() for array in arrays)

    def read(place: int, size: int) -> bytes:
        return data[place : place + size]

    assert same(packing.update_from(good, LAYOUT, read).losses, losses)
    bomb = b"z" + zlib.compress(b"\0" * 50_000_000)
    for place, wrong in ((3, 3), (3, -1), (3, 10**9), (4, 10**9), (5, 0), (5, 7), (6, b""), (6, bomb), (7, 5)):
        tracemalloc.start()
        try:
            with pytest.raises(StoreError, match="damaged"):
                packing.update_from([*good[:place], wrong, *good[place + 1 :]], LAYOUT, read)
            assert tracemalloc.get_traced_memory()[1] < 1_000_000
        finally:
            tracemalloc.stop()


def test_arrays_are_read_within_their_file(tmp_path: Path) -> None:
    """Arrays come back from their places; a place outside, a cut file and a missing one are refused."""
    writer = ArrayWriter(tmp_path)
    many = [np.full(50, number % 256, np.uint8) for number in range(1200)]
    writer.write_arrays([np.zeros((0, 3), np.float32), *many])
    assert writer.end == (tmp_path / ARRAYS).stat().st_size == 60_000
    writer.write_arrays([np.ones(7, np.float64)])
    writer.end = 60_000  # forget the last
    writer.write_arrays([np.arange(4, dtype=np.int8)])
    writer.close()
    reader = ArrayReader(tmp_path)
    assert reader.read(35_000, 50) == bytes([700 % 256]) * 50
    assert reader.read(60_000, 4) == bytes(range(4))
    assert reader.read(10**12, 0) == b""
    for place, size in ((60_000, 5), (-1, 4), (10**12, 1), (0, 10**15)):
        with pytest.raises(StoreError, match=r"arrays\.bin ends too early"):
            reader.read(place, size)
    reader.close()
    with pytest.raises(StoreError, match="whole folder"):
        ArrayReader(tmp_path / "elsewhere").read(0, 1)


@pytest.mark.parametrize("disk", ["as it is", "slow", "without direct writes", "full at first"])
def test_large_and_small_arrays_lie_where_their_places_say(disk: str, tmp_path: Path) -> None:
    """Large ones go straight to the disk where that can be done, and all come back, whatever the disk is like."""
    sizes = (10, LARGE, 3, (1 << 20) + 5, 1, 2 * LARGE, LARGE - 1)
    known = [np.random.default_rng(size).integers(0, 256, size, np.uint8) for size in sizes]
    with pytest.MonkeyPatch.context() as patch:
        if disk == "slow":
            patch.setattr(direct, "SLOWEST_S", 0.0)
        if disk == "without direct writes":
            patch.delattr(os, "O_DIRECT", raising=False)
        if disk == "full at first":
            patch.setattr(os, "pwrite", lambda *_: 100)
        writer = ArrayWriter(tmp_path)
        places = [writer.write_arrays([one[: len(one) // 2], one[len(one) // 2 :]]) for one in known]
        writer.close()
    reader = ArrayReader(tmp_path)
    assert [reader.read(place, len(one)) for place, one in zip(places, known, strict=True)] == [
        one.tobytes() for one in known
    ]
    reader.close()
    ends = [place + len(one) for place, one in zip(places, known, strict=True)]
    assert all(0 <= place - end < direct.PAGE for place, end in zip(places[1:], ends, strict=False))


def test_large_blocks_are_read_while_the_run_goes_on(tmp_path: Path) -> None:
    """Another connection sees what was committed, whichever way its arrays went to the disk; what a killed writer left
    behind them is nobody's."""
    store, random = SQLiteStore(tmp_path), np.random.default_rng(0)
    blocks = [
        UpdateBlock(number, number, 1, random.standard_normal((rows, 2, 6)).astype(np.float32))
        for number, rows in enumerate((3, 4000, 5, 2000, 4000))
    ]
    with closing(store.create(RUN)) as journal:
        journal.append([LAYOUT])
        with closing(store.open("last")) as reader:
            for count, block in enumerate(blocks, start=1):
                journal.append([block])
                assert same([one.stats for one in reader.update_blocks()], [one.stats for one in blocks[:count]])
        with (tmp_path / RUN.id / ARRAYS).open("ab") as file:
            file.write(b"half a block")
        with closing(store.open("last")) as reader:
            assert same([one.stats for one in reader.update_blocks()], [one.stats for one in blocks])


def test_what_a_failed_append_wrote_is_written_over(tmp_path: Path) -> None:
    """Arrays of an append that failed leave no gap in the file."""
    good = UpdateBlock(1, 0, 1, np.ones((2, 2, 6), np.float32))
    store = SQLiteStore(tmp_path)
    with closing(store.create(RUN)) as journal:
        journal.append([LAYOUT, good])
        with pytest.raises(BadRecordError):
            journal.append([replace(good, id=2), Failure("noon", "train", "x", "y")])  # type: ignore[arg-type]  # wrong on purpose
        journal.append([replace(good, id=3, stats=2 * good.stats)])
    assert (tmp_path / RUN.id / "arrays.bin").stat().st_size == 2 * good.stats.nbytes
    with closing(store.open("last")) as reader:
        assert [float(block.stats.max()) for block in reader.update_blocks()] == [1.0, 2.0]


def test_a_run_begins_as_a_copy_of_an_empty_database() -> None:
    """The copy has every table that the migrations make, and is ours."""
    made, copied = (closing(sqlite3.connect(":memory:", isolation_level=None)) for _ in range(2))
    with made as one, copied as other:
        schema.migrate(one, schema.MIGRATIONS)
        other.deserialize(schema.empty())
        assert schema.check(other, Path("copy"), schema.VERSION) == schema.VERSION
        tables = "SELECT type, name, sql FROM sqlite_master ORDER BY name"
        assert other.execute(tables).fetchall() == one.execute(tables).fetchall()
        assert other.execute("PRAGMA page_size").fetchone() == (schema.PAGE_BYTES,)


def test_what_went_past_the_cache_is_cut_and_synced_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nothing was written in any other way."""
    synced: list[int] = []
    monkeypatch.setattr("os.fdatasync", synced.append)
    writer = ArrayWriter(tmp_path)
    writer.write_arrays([np.zeros(3 * LARGE, np.uint8)])
    kept = writer.end
    writer.write_arrays([np.ones(LARGE, np.uint8)])
    writer.end = kept  # forget the last
    writer.close()
    assert (tmp_path / ARRAYS).stat().st_size == kept
    assert len(synced) == 1
