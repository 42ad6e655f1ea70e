"""Making room: what the plan takes, what it spares, and that a dry run touches nothing."""

from __future__ import annotations

import os
import platform
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedvitals.store import SQLiteStore
from fedvitals.store.contract import RUN, participation
from fedvitals.store.gc import DAY_NS, Limits, collect, plan
from fedvitals.vocabulary import Blob, Run, Status

NOW = 1000 * DAY_NS


def run(number: int, days: float, status: Status = Status.FINISHED) -> Run:
    return Run(f"r{number}", "x", status, int(NOW - days * DAY_NS))


FIVE = [(run(number, days=10 * number), 100) for number in range(5)]  # r0 is the newest


@pytest.mark.parametrize(
    ("limits", "gone"),
    [
        (Limits(), []),
        (Limits(keep=5), []),
        (Limits(keep=2), ["r4", "r3", "r2"]),
        (Limits(keep=0), ["r4", "r3", "r2", "r1", "r0"]),
        (Limits(older_than_days=25), ["r4", "r3"]),
        (Limits(max_total_bytes=250), ["r4", "r3", "r2"]),
        (Limits(max_total_bytes=0), ["r4", "r3", "r2", "r1", "r0"]),
        (Limits(keep=4, older_than_days=5), ["r4"]),
        (Limits(keep=2, max_total_bytes=0), ["r4", "r3", "r2"]),
        (Limits(older_than_days=35, max_total_bytes=300), ["r4", "r3"]),
    ],
)
def test_the_plan_takes_the_oldest_beyond_the_limits(limits: Limits, gone: list[str]) -> None:
    """Each limit takes the oldest runs beyond it; `keep` spares the newest from the others."""
    assert [removal.run for removal in plan(FIVE, limits, NOW)] == gone


def test_every_removal_says_why() -> None:
    """The reason names the limit."""
    (old,) = plan(FIVE, Limits(older_than_days=35), NOW)
    assert (old.size_bytes, old.why) == (100, "40 days old, older than 35")


@given(
    st.lists(st.tuples(st.integers(0, 50), st.sampled_from(list(Status)), st.integers(0, 1000)), max_size=8),
    st.builds(
        Limits,
        keep=st.none() | st.integers(0, 8),
        older_than_days=st.none() | st.integers(0, 50),
        max_total_bytes=st.none() | st.integers(0, 4000),
    ),
)
def test_running_runs_and_the_kept_newest_are_safe(runs: list[tuple[int, Status, int]], limits: Limits) -> None:
    """No plan without force takes a running run, or one of the newest `keep`; what is left fits, if anything could."""
    sized = [(run(number, days, status), size) for number, (days, status, size) in enumerate(runs)]
    gone = {removal.run for removal in plan(sized, limits, NOW)}
    newest = sorted(sized, key=lambda pair: (pair[0].started_unix_ns, pair[0].id), reverse=True)[: limits.keep or 0]
    spared = {one.id for one, _ in newest} | {one.id for one, _ in sized if one.status is Status.RUNNING}
    assert gone.isdisjoint(spared)
    left = sum(size for one, size in sized if one.id not in gone)
    if limits.max_total_bytes is not None and left > limits.max_total_bytes:
        assert {one.id for one, _ in sized} - gone <= spared


def test_force_takes_running_runs() -> None:
    """With force a running run is like any other."""
    going = [(run(1, 5, Status.RUNNING), 10)]
    assert plan(going, Limits(keep=0), NOW) == []
    assert [removal.run for removal in plan(going, Limits(keep=0, force=True), NOW)] == ["r1"]


def stored(root: Path) -> SQLiteStore:
    """Two ended runs; the newer one has a blob with a record and a stray one."""
    store = SQLiteStore(root)
    store.create(Run("old", "x", Status.FINISHED, NOW - 90 * DAY_NS)).close()
    with closing(store.create(Run("new", "x", Status.FINISHED, NOW - DAY_NS))) as journal:
        journal.append([Blob(journal.put_blob(b"known"), "model", 5), participation("a", 0)])
        journal.put_blob(b"stray!" * 50_000)
    return store


def test_collecting_deletes_runs_and_stray_blobs(tmp_path: Path) -> None:
    """A dry run gives the same list and deletes nothing; the real one deletes exactly that."""
    store = stored(tmp_path)
    limits = Limits(older_than_days=30)
    promised = collect(store, limits, NOW, dry_run=True)
    assert [(removal.run, removal.blob is not None) for removal in promised] == [("old", False), ("new", True)]
    assert promised[1].size_bytes == 300_000
    assert len(store.runs()) == 2
    assert collect(store, limits, NOW) == promised
    assert [one.id for one in store.runs()] == ["new"]
    with closing(store.open("new")) as reader:
        assert reader.blob(reader.blobs()[0].name) == b"known"
    assert collect(store, limits, NOW) == []


def test_blobs_of_a_running_run_are_left_alone(tmp_path: Path) -> None:
    """A blob is written before its record: while its run goes on it is no stray."""
    process = psutil.Process()
    alive = {"host": platform.node(), "pid": process.pid, "process_started": process.create_time()}
    store = SQLiteStore(tmp_path)
    with closing(store.create(replace(RUN, environment=alive))) as journal:
        journal.put_blob(b"its record comes later" * 20_000)
        assert store.runs()[0].status is Status.RUNNING
        assert collect(store, Limits(), NOW) == []


def test_a_run_that_was_killed_as_it_began_goes_once_it_is_stale(tmp_path: Path) -> None:
    """After an hour; one that may be on its way, a file and a link of such a name stay."""
    store = SQLiteStore(tmp_path)
    hour_ns = 3600 * 10**9
    for name in (".new-old-1", ".new-fresh-2", "elsewhere"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.db").write_bytes(bytes(100))
    os.utime(tmp_path / ".new-old-1", ns=(NOW - 2 * hour_ns, NOW - 2 * hour_ns))
    os.utime(tmp_path / "elsewhere", ns=(NOW - 2 * hour_ns, NOW - 2 * hour_ns))
    os.utime(tmp_path / ".new-fresh-2", ns=(NOW - hour_ns // 2, NOW - hour_ns // 2))
    (tmp_path / ".new-link-3").symlink_to(tmp_path / "elsewhere")
    (tmp_path / ".new-file").write_bytes(b"x")
    planned = collect(store, Limits(), NOW, dry_run=True)
    assert [(one.run, one.size_bytes) for one in planned] == [(".new-old-1", 100)]
    assert (tmp_path / ".new-old-1").is_dir()
    assert collect(store, Limits(), NOW) == planned
    assert sorted(path.name for path in tmp_path.iterdir()) == [".new-file", ".new-fresh-2", ".new-link-3", "elsewhere"]
