"""The small parts of the store: status, names, blobs, plain values, rows and packed arrays."""

from __future__ import annotations

import math
import platform
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
from fedvitals.store import SQLiteStore, packing
from fedvitals.store.blobs import BlobFolder
from fedvitals.store.contract import LAYOUT, RUN
from fedvitals.store.journal import BadRecordError
from fedvitals.store.names import check_name
from fedvitals.store.plain import plain, to_json
from fedvitals.store.rows import to_row
from fedvitals.store.status import settled
from fedvitals.vocabulary import Evaluation, Failure, Run, Status, UpdateBlock

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
    folder = BlobFolder(tmp_path)
    name, added = folder.put(b"weights")
    assert added == 7
    assert folder.put(b"weights") == (name, 0)
    path = folder.path_of(name)
    (path.parent / (path.name + ".1.partial")).write_bytes(b"wei")
    assert [found for found, _ in folder.files()] == [name]
    assert folder.size_bytes() == 7
    path.write_bytes(b"WEIGHTS")
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
    row = packing.update_row(block, LAYOUT)
    assert len(row[-1]) <= most
    found = packing.update_from(row, LAYOUT).loss_steps
    assert found is not None
    assert np.array_equal(found, array)


def test_packed_arrays_are_verified() -> None:
    """Bytes that do not fill the shape, a bomb among them, are refused."""
    good = packing.update_row(UpdateBlock(1, 0, 1, np.zeros((2, 2, 6), np.float32)), LAYOUT)
    for place, wrong in ((3, 3), (3, -1), (3, 10**9), (4, 10**9), (5, b""), (6, b"1")):
        row = list(good)
        row[place] = wrong
        with pytest.raises(StoreError, match="damaged"):
            packing.update_from(row, LAYOUT)
    bomb = list(good)
    bomb[-1] = b"z" + zlib.compress(b"\0" * 50_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(StoreError, match="damaged"):
            packing.update_from(bomb, LAYOUT)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
