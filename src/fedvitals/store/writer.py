"""The one writer thread of a run: takes records at once, writes them in batches, never hurts who hands them over.

The queue is bounded by bytes. What does not fit, or comes after the medium failed, is dropped and counted. Everything
put in is on disk after at most one interval and one batch, so a killed process loses less than half a second.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import repeat

from fedvitals.store.journal import BadRecordError
from fedvitals.store.protocol import Journal
from fedvitals.vocabulary import (
    Blob,
    Participation,
    Participations,
    Record,
    ResourceSample,
    Span,
    StepBlock,
    UpdateBlock,
)

BATCH_BYTES = 8 << 20  # of one transaction: more would keep readers and the queue waiting
IDLE_S = 1.0  # after so long without a record the journal is called all the same
DETAILS = frozenset((UpdateBlock, StepBlock, Span, ResourceSample, Blob))  # given up first, when the run grows too big


_writers: weakref.WeakSet[BackgroundWriter] = weakref.WeakSet()


@dataclass(frozen=True, slots=True)
class _BlobJob:
    """Bytes to keep, and how to speak of them once they have a name."""

    data: bytes | Callable[[], bytes]
    describe: Callable[[str], Blob]


Work = Sequence[Record] | _BlobJob | threading.Event  # an event is set once all before it is on disk


class BackgroundWriter:
    """Feeds a journal from its own daemon thread. `put` costs about a microsecond, never waits and never raises."""

    def __init__(
        self,
        journal: Journal,
        *,
        queue_bytes: int,
        flush_every_s: float = 0.2,
        max_bytes: int | None = None,
        on_trouble: Callable[[str], None],
    ) -> None:
        self.dropped: dict[str, int] = Counter()
        self.cpu_s = 0.0  # of the writer thread
        self.memory_bytes = 0  # queued or being written
        self._journal = journal
        self._queue_bytes = queue_bytes
        self._flush_every_s = flush_every_s
        self._max_bytes = max_bytes
        # Sizes are looked at between batches: a run that may take little is written in small ones.
        self._batch_bytes = BATCH_BYTES if max_bytes is None else min(BATCH_BYTES, max_bytes // 16)
        self._on_trouble = on_trouble
        self._queue: deque[tuple[Work, int]] = deque()
        self._lock = threading.RLock()  # reentrant: a signal handler or a destructor may log while we hold it
        self._wake = threading.Event()
        self._closing = False
        self._dead = False  # the medium failed, or this is a forked child's copy
        self._unmeasured_bytes = 0
        self._told: set[str] = set()
        self._idle_s = max(flush_every_s, IDLE_S)
        self._idle_since = self._oldest_s = time.monotonic()  # since when the first in the queue has waited
        _writers.add(self)
        self._thread = threading.Thread(target=self._work, name="fedvitals-writer", daemon=True)
        self._thread.start()

    def put(self, records: Sequence[Record], size_bytes: int) -> bool:
        """Hand these over; False when they were dropped. They must not change afterwards."""
        return self._enqueue(records, size_bytes)

    def put_blob(self, data: bytes | Callable[[], bytes], size_bytes: int, describe: Callable[[str], Blob]) -> bool:
        """Hand over bytes, or what makes them in the writer's thread; `describe` turns their name into the record."""
        return self._enqueue(_BlobJob(data, describe), size_bytes)

    def nudge(self) -> None:
        """Write now what was put so far, rather than when the interval is over. Does not wait."""
        self._wake.set()

    def flush(self, timeout_s: float) -> bool:
        """Wait until all that was put before is on disk; False when that takes longer, or cannot be."""
        done = threading.Event()
        if not self._enqueue(done, 0):
            return False
        self._wake.set()
        return done.wait(timeout_s) and not self._dead

    def close(self, timeout_s: float) -> bool:
        """Write what is left and end the thread; False when that takes longer. Nothing is taken after."""
        with self._lock:
            self._closing = True
        self._wake.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _enqueue(self, work: Work, size_bytes: int) -> bool:
        if self._dead:
            return self._drop(work)
        with self._lock:
            queued = self.memory_bytes + size_bytes
            if self._closing or queued > self._queue_bytes:
                return self._drop(work)
            if not self._queue:
                self._oldest_s = time.monotonic()
            self._queue.append((work, size_bytes))
            self.memory_bytes = queued
        if queued > self._queue_bytes >> 2:
            self._wake.set()
        return True

    def _drop(self, work: Work) -> bool:
        with self._lock:
            for name in _kinds(work):
                self.dropped[name] = self.dropped.get(name, 0) + 1
        return False

    def _work(self) -> None:
        """The thread: wait, write all there is, until closed or the medium fails."""
        try:
            while not self._dead:
                last = self._closing
                if not last and not self._wake.wait(self._patience_s()) and self._patience_s() > 0.0:
                    continue  # what there is came while we waited for nothing, and can wait for more
                self._wake.clear()
                self._write_queued()
                self.cpu_s = time.thread_time()
                if last:
                    break
        finally:
            with suppress(Exception):  # nothing is left to tell
                self._journal.close()
            self.cpu_s = time.thread_time()

    def _patience_s(self) -> float:
        """How long what is queued may still wait: until the first of it has waited for an interval."""
        if not self._queue:
            return self._flush_every_s if time.monotonic() - self._idle_since < self._idle_s else 0.0
        return max(self._oldest_s + self._flush_every_s - time.monotonic(), 0.0)

    def _write_queued(self) -> None:
        try:
            while batch := self._take():
                self._write(batch)
                self._idle_since = time.monotonic()
            if time.monotonic() - self._idle_since >= self._idle_s:
                self._journal.append([])  # lets the journal show that the writer lives, and see that its file is there
                self._idle_since = time.monotonic()
        except Exception as error:
            self._fail(str(error))

    def _take(self) -> list[tuple[Work, int]]:
        batch: list[tuple[Work, int]] = []
        size = 0
        while self._queue and (not batch or size < self._batch_bytes):
            batch.append(self._queue.popleft())
            size += batch[-1][1]
        return batch

    def _write(self, batch: list[tuple[Work, int]]) -> None:
        """One transaction. What cannot be written is counted before the error goes on."""
        records: list[Record] = []
        rest = deque(work for work, _ in batch)
        size = sum(size for _, size in batch)
        try:
            while rest:
                records += self._records_of(rest[0])
                rest.popleft()
            self._append(records)
            self._check_size(size)
        except Exception:
            for lost in (records, *rest):
                self._drop(lost)
            raise
        finally:
            with self._lock:
                self.memory_bytes -= size
            _set_events(batch)

    def _records_of(self, work: Work) -> Sequence[Record]:
        if isinstance(work, threading.Event):
            return ()
        if isinstance(work, _BlobJob):
            return self._kept_blob(work)
        if not self._full:
            return work
        details = [record for record in work if type(record) in DETAILS]
        self._drop(details)
        return [record for record in work if type(record) not in DETAILS]

    def _kept_blob(self, job: _BlobJob) -> Sequence[Record]:
        if self._full:
            self._drop(job)
            return ()
        try:
            data = job.data if isinstance(job.data, bytes) else job.data()
        except Exception as error:  # the caller's own code: the medium is fine
            self._drop(job)
            self._tell("blob", f"a blob could not be made and is left out: {type(error).__name__}: {error}")
            return ()
        return (job.describe(self._journal.put_blob(data)),)

    def _append(self, records: Sequence[Record]) -> None:
        try:
            self._journal.append(records)
        except BadRecordError as error:
            self._tell("record", f"a record is left out of the run: {error}")
            self._append_singly(records)

    def _append_singly(self, records: Sequence[Record]) -> None:
        for record in records:
            try:
                self._journal.append((record,))
            except BadRecordError:
                self._drop((record,))

    @property
    def _full(self) -> bool:
        return "size" in self._told

    def _check_size(self, added_bytes: int) -> None:
        """Look at the disk once enough was written to matter."""
        if self._max_bytes is None or self._full:
            return
        self._unmeasured_bytes += added_bytes
        if self._unmeasured_bytes * 16 < min(self._max_bytes, 16 << 20):
            return
        self._unmeasured_bytes = 0
        if self._journal.size_bytes() > self._max_bytes:
            self._tell(
                "size",
                f"the run has grown beyond {self._max_bytes / 1e6:,.0f} MB: only scalars are recorded from here on; "
                "max_mb allows more",
            )

    def _fail(self, message: str) -> None:
        with self._lock:
            self._dead = True
            left, self._queue = self._queue, deque()
            self.memory_bytes = 0
        for work, _ in left:
            self._drop(work)
        _set_events(left)
        self._tell("medium", f"recording has stopped, the training goes on: {message}")

    def _tell(self, topic: str, message: str) -> None:
        if topic not in self._told:
            self._told.add(topic)
            with suppress(Exception):  # a warning that cannot be given must not end the writer
                self._on_trouble(message)

    def _become_inert(self) -> None:
        """In a forked child: there is no thread here, and the file is the parent's."""
        self._dead = True
        self._lock = threading.RLock()  # the old one may have been held by a thread that is not here
        self._queue = deque()
        self.memory_bytes = 0


def _kinds(work: Work) -> list[str]:
    if isinstance(work, threading.Event):
        return []
    if isinstance(work, _BlobJob):
        return [Blob.__name__]
    return [name for record in work for name in _names(record)]


def _names(record: Record) -> Iterable[str]:
    if isinstance(record, Participations):
        return repeat(Participation.__name__, record.count)
    return (type(record).__name__,)


def _set_events(batch: Iterable[tuple[Work, int]]) -> None:
    for work, _ in batch:
        if isinstance(work, threading.Event):
            work.set()


def _disown() -> None:
    for writer in list(_writers):
        writer._become_inert()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown)
