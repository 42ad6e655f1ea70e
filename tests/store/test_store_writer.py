"""The background writer: quick to take, bounded, and harmless whatever happens to the disk."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

from fedvitals.errors import StoreError
from fedvitals.store import BackgroundWriter, SQLiteStore
from fedvitals.store.contract import LAYOUT, RUN, participation
from fedvitals.vocabulary import (
    Blob,
    Evaluation,
    Participation,
    Record,
    ResourceSample,
    Round,
    Span,
    UpdateBlock,
)

QUEUE = 1 << 20
NEVER_S = 3600.0


class SlowJournal:
    """A journal whose disk answers when the test says so."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.entered = threading.Event()
        self.written: list[Record] = []
        self.batches: list[int] = []
        self.closed = False

    def append(self, records: Sequence[Record]) -> None:
        if records:
            self.batches.append(len(records))
            self.entered.set()
            self.gate.wait()
            self.written += records

    def put_blob(self, data: bytes) -> str:
        return data.decode()

    def size_bytes(self) -> int:
        return 0

    def close(self) -> None:
        self.closed = True


class FailingJournal(SlowJournal):
    """A journal whose disk is gone."""

    def append(self, records: Sequence[Record]) -> None:
        if records:
            raise StoreError("the disk is gone")


@pytest.fixture
def slow() -> Iterator[SlowJournal]:
    journal = SlowJournal()
    yield journal
    journal.gate.set()


def ignore(message: str) -> None:
    raise AssertionError(message)


def some(count: int, first: int = 0) -> list[Participation]:
    return [participation("a", first + index) for index in range(count)]


def test_everything_put_is_written_in_order(tmp_path: Path) -> None:
    """Records from several threads are all on disk after close, each thread's in its order."""
    store = SQLiteStore(tmp_path)
    writer = BackgroundWriter(store.create(RUN), queue_bytes=64 << 20, on_trouble=ignore)

    def feed(client: str) -> None:
        for attempt in range(200):
            assert writer.put([participation(client, attempt)], 100)

    threads = [threading.Thread(target=feed, args=(client,)) for client in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert writer.close(60)
    with closing(store.open("last")) as reader:
        for client in "abc":
            assert [one.attempt for one in reader.participations(client=client)] == list(range(200))
    assert writer.dropped == {}
    assert writer.memory_bytes == 0
    assert writer.cpu_s > 0


def test_a_flush_makes_records_visible_while_recording(tmp_path: Path) -> None:
    """After a flush a reader sees all that was put before it, though the interval is far from over."""
    store = SQLiteStore(tmp_path)
    writer = BackgroundWriter(store.create(RUN), queue_bytes=QUEUE, flush_every_s=NEVER_S, on_trouble=ignore)
    writer.put(some(3), 300)
    assert writer.flush(60)
    with closing(store.open("last")) as reader:
        assert len(reader.participations()) == 3
    assert writer.close(60)
    assert not writer.flush(0)


def test_what_waits_is_written_in_one_transaction(slow: SlowJournal) -> None:
    """All that came while the disk was busy goes out together."""
    writer = BackgroundWriter(slow, queue_bytes=QUEUE, flush_every_s=0.001, on_trouble=ignore)
    writer.put(some(1), 100)
    slow.entered.wait()
    for index in range(5):
        writer.put(some(2, 2 * index + 1), 100)
    slow.gate.set()
    assert writer.close(60)
    assert slow.batches == [1, 10]


def test_a_full_queue_drops_and_counts_by_kind(slow: SlowJournal) -> None:
    """What does not fit is refused at once and counted by kind; what fitted is written."""
    writer = BackgroundWriter(slow, queue_bytes=1000, on_trouble=ignore)
    assert writer.put(some(2), 900)
    assert not writer.put([*some(3), Round(1, 1, 0)], 200)
    assert not writer.put_blob(b"x", 5000, lambda name: Blob(name, "model", 1))
    assert writer.put(some(1), 100)
    assert writer.memory_bytes == 1000
    assert writer.dropped == {"Participation": 3, "Round": 1, "Blob": 1}
    slow.gate.set()
    assert writer.close(60)
    assert len(slow.written) == 3


def test_putting_never_waits_for_the_disk(slow: SlowJournal) -> None:
    """While the disk hangs, puts return; the close gives up after its time and says so."""
    writer = BackgroundWriter(slow, queue_bytes=QUEUE, flush_every_s=0.001, on_trouble=ignore)
    writer.put(some(1), 100)
    slow.entered.wait()
    assert all(writer.put(some(1), 10) for _ in range(1000))
    assert not writer.close(0.01)
    assert not writer.put(some(1), 10)
    slow.gate.set()
    assert writer.close(60)
    assert slow.closed
    assert len(slow.written) == 1001


def test_a_failed_medium_is_told_once_and_everything_is_counted() -> None:
    """After trouble there is one message, and all that was or is put in counts as dropped."""
    told: list[str] = []
    writer = BackgroundWriter(FailingJournal(), queue_bytes=QUEUE, flush_every_s=NEVER_S, on_trouble=told.append)
    writer.put(some(2), 100)
    assert not writer.flush(60)
    assert not writer.put(some(1), 100)
    assert writer.close(60)
    assert len(told) == 1
    assert "the disk is gone" in told[0]
    assert writer.dropped == {"Participation": 3}
    assert writer.memory_bytes == 0


def test_a_warning_that_fails_hurts_nobody(tmp_path: Path) -> None:
    """The one who is told may raise; recording goes on."""
    store = SQLiteStore(tmp_path)
    writer = BackgroundWriter(store.create(RUN), queue_bytes=QUEUE, on_trouble=ignore)
    writer.put([UpdateBlock(1, 0, 1, np.zeros((1, 9, 6), np.float32))], 100)
    assert writer.flush(60)
    writer.put(some(1), 100)
    assert writer.close(60)
    assert writer.dropped == {"UpdateBlock": 1}
    with closing(store.open("last")) as reader:
        assert len(reader.participations()) == 1


def test_a_bad_record_is_left_out_alone(tmp_path: Path) -> None:
    """A record that cannot be kept is counted and told; those put with it are written, and recording goes on."""
    told: list[str] = []
    store = SQLiteStore(tmp_path)
    writer = BackgroundWriter(store.create(RUN), queue_bytes=QUEUE, on_trouble=told.append)
    wrong = UpdateBlock(1, 0, 1, np.zeros((1, 9, 6), np.float32))
    writer.put([LAYOUT, *some(2), wrong], 100)
    writer.flush(60)
    writer.put([*some(1, 2), wrong], 100)
    assert writer.close(60)
    assert writer.dropped == {"UpdateBlock": 2}
    assert len(told) == 1
    assert "(1, 9, 6)" in told[0]
    with closing(store.open("last")) as reader:
        assert [one.attempt for one in reader.participations()] == [0, 1, 2]


def test_blobs_are_made_in_the_writers_thread(tmp_path: Path) -> None:
    """A blob's bytes are made by the writer, kept under their name, and described with it; a maker may fail."""
    told: list[str] = []
    makers: list[str] = []
    store = SQLiteStore(tmp_path)
    writer = BackgroundWriter(store.create(RUN), queue_bytes=QUEUE, on_trouble=told.append)

    def make() -> bytes:
        makers.append(threading.current_thread().name)
        return b"weights"

    def fail() -> bytes:
        raise ValueError("no weights")

    assert writer.put_blob(make, 7, lambda name: Blob(name, "model", 7, version=3))
    assert writer.put_blob(fail, 7, lambda name: Blob(name, "model", 7))
    assert writer.close(60)
    assert makers == ["fedvitals-writer"]
    assert writer.dropped == {"Blob": 1}
    assert "no weights" in told[0]
    with closing(store.open("last")) as reader:
        (blob,) = reader.blobs()
        assert reader.blob(blob.name) == b"weights"
        assert blob.version == 3


def test_beyond_its_size_a_run_keeps_scalars_only(tmp_path: Path) -> None:
    """Past max_bytes details are dropped and counted, scalars go on, and there is one message."""
    told: list[str] = []
    store = SQLiteStore(tmp_path)
    writer = BackgroundWriter(store.create(RUN), queue_bytes=64 << 20, max_bytes=600_000, on_trouble=told.append)
    writer.put([LAYOUT], 100)
    writer.put_blob(b"x" * 500_000, 500_000, lambda name: Blob(name, "model", 500_000))
    writer.flush(60)
    block = UpdateBlock(1, 0, 1, np.zeros((1, 2, 6), np.float32))
    details: list[Record] = [block, Span(1, None, "train", 0, 1), ResourceSample(0, 1, 1, 1, 0.0, 1)]
    for attempt in range(3):
        writer.put([participation("a", attempt), Evaluation(0, attempt), *details], 100)
        writer.put_blob(b"y", 1, lambda name: Blob(name, "model", 1))
    assert writer.close(60)
    assert writer.dropped == {"UpdateBlock": 3, "Span": 3, "ResourceSample": 3, "Blob": 3}
    assert len(told) == 1
    assert "max_mb" in told[0]
    with closing(store.open("last")) as reader:
        assert len(reader.participations()) == len(reader.evaluations()) == 3
        assert (reader.spans(), reader.resources(), list(reader.update_blocks())) == ([], [], [])
        assert len(reader.blobs()) == 1


def test_a_small_run_stays_small_however_much_comes_at_once(tmp_path: Path) -> None:
    """The size is looked at more often than every 8 MB where fewer are allowed."""
    store = SQLiteStore(tmp_path)
    writer = BackgroundWriter(store.create(RUN), queue_bytes=64 << 20, max_bytes=2_000_000, on_trouble=lambda _: None)
    for number in range(40):
        data = bytes([number]) * 100_000
        writer.put_blob(data, len(data), lambda name: Blob(name, "update", 100_000))
    assert writer.close(60)
    with closing(store.open("last")) as reader:
        assert 1_500_000 < reader.size_bytes() < 2_400_000
        assert len(reader.blobs()) + writer.dropped["Blob"] == 40


@contextmanager
def held_by_another_thread(lock: AbstractContextManager[object]) -> Iterator[None]:
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            release.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    yield
    release.set()
    holder.join()


def test_a_forked_child_is_inert(tmp_path: Path) -> None:
    """In a forked child everything is refused and nothing waits; the parent's run is not touched."""
    store = SQLiteStore(tmp_path)
    writer = BackgroundWriter(store.create(RUN), queue_bytes=QUEUE, flush_every_s=NEVER_S, on_trouble=ignore)
    writer.put(some(2), 100)
    writer.flush(60)
    log = tmp_path / RUN.id / "run.db-wal"
    before = log.stat().st_size
    writer.put(some(1, 2), 100)
    with held_by_another_thread(writer._lock):  # the worst moment
        child = os.fork()
        if child == 0:
            signal.alarm(30)  # a deadlock is a failure, not a hang
            inert = not writer.put(some(5), 1) and not writer.flush(10) and writer.memory_bytes == 0
            writer._journal.close()
            os._exit(0 if inert and writer.close(10) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert log.stat().st_size == before > 0
    writer.put(some(1, 3), 100)
    assert writer.close(60)
    with closing(store.open("last")) as reader:
        assert [one.attempt for one in reader.participations()] == [0, 1, 2, 3]


def test_memory_stays_flat(tmp_path: Path) -> None:
    """What the writer and its journal hold does not grow with what was written, once the clients are known."""
    import tracemalloc

    store = SQLiteStore(tmp_path)
    writer = BackgroundWriter(store.create(RUN), queue_bytes=64 << 20, on_trouble=ignore)

    def write_some(first: int) -> int:
        for attempt in range(first, first + 100):
            spans: list[Record] = [Span(50 * attempt + index, None, "train", 0, 1, attempt) for index in range(50)]
            writer.put([*(participation(f"c{index}", attempt, attempt) for index in range(50)), *spans], 1000)
        assert writer.flush(60)
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        write_some(0)
        before = write_some(100)
        after = write_some(200)
    finally:
        tracemalloc.stop()
    assert writer.close(60)
    assert after - before < 100_000  # 10,000 records; one of their columns alone would be more


def test_the_heartbeat_goes_on_without_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer with nothing to write shows again and again that it lives."""
    monkeypatch.setattr("fedvitals.store.journal.HEARTBEAT_S", 0.001)
    monkeypatch.setattr("fedvitals.store.writer.IDLE_S", 0.001)
    store = SQLiteStore(tmp_path)
    writer = BackgroundWriter(store.create(RUN), queue_bytes=QUEUE, flush_every_s=0.001, on_trouble=ignore)
    beats: set[int] = set()
    with closing(store.open("last")) as reader:
        while len(beats) < 4:
            beats.update(beat for (beat,) in reader._rows("SELECT value FROM meta WHERE name = 'heartbeat'"))
    assert writer.close(60)
