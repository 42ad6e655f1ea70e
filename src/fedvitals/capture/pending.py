"""Updates that wait to be summarised: those of several rounds together, because an operation on a few rows costs as
much as one on hundreds.

They wait until the oldest is two fifths of a second old, or until they fill their memory. Then their statistics are
computed at once, mostly in the recorder's own thread, and written at once, so that a killed process loses little.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedvitals.capture.batch import Batch, sum_up
from fedvitals.capture.tensors import Row, Shelf, kernel, named, summarise

if TYPE_CHECKING:
    from fedvitals.capture.buffer import CohortBuffer

OLDEST_S = 0.39  # with what summarising and writing take, a killed process loses less than half a second
MOST_BYTES = 16 * 2**20  # beyond this, rows would only push each other out of the cache


class Entry(NamedTuple):
    """Rows of one batch of one round."""

    buffer: CohortBuffer
    batch: Batch
    rows: Row | None  # [clients, size]; nobody writes to it any more
    found: kernel.Found | None = None  # where it was found out at once: then there are no rows


class Pending:
    """The waiting updates of a run; any thread may add and any may flush."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flushing = threading.Lock()  # one at a time, so that a round's parts arrive in their order
        self._entries: list[Entry] = []
        self._shelf = Shelf()
        self._bytes = 0
        self._loose_bytes = 0  # of it, what found no room on the shelf
        self._oldest_s = 0.0

    def add(self, entry: Entry, *, shelved: bool = False, borrowed: bool = False) -> None:
        """`shelved` says that the rows lie in a place that `row` gave; `borrowed`, that somebody may write to them."""
        size = 0 if entry.rows is None else entry.rows.nbytes
        with self._lock:
            if not self._entries:
                self._oldest_s = time.monotonic()
            if not shelved and entry.rows is not None:
                rows = self._shelf.row(entry.rows)
                if rows is entry.rows:
                    self._loose_bytes += size
                    if borrowed and self._bytes + size < MOST_BYTES:
                        rows = rows.detach().clone()
                entry = entry._replace(rows=rows)
            self._entries.append(entry)
            self._bytes += size
            full = self._bytes >= MOST_BYTES
        if full:  # and what is borrowed was read when this is over
            self.flush()

    def close(self) -> None:
        """Nothing more will wait."""
        self._shelf = Shelf()

    def row(self, size: int) -> Row | None:
        """Where an update of so many values can wait: put there at once, it need not be copied there."""
        with self._lock:
            return self._shelf.empty_row(size)

    def room(self, size: int) -> np.ndarray | None:
        """Where a summary that is made at once can wait."""
        with self._lock:
            return self._shelf.room(size)

    @property
    def size_bytes(self) -> int:
        """Of the rows that wait, and of the shelf."""
        return self._loose_bytes + self._shelf.size_bytes

    @property
    def busy(self) -> bool:
        """Rows are being summarised just now, which takes more memory than they do."""
        return self._flushing.locked()

    @property
    def due_s(self) -> float:
        """When the oldest will have waited long enough, on the monotonic clock; infinity when nothing waits."""
        return self._oldest_s + OLDEST_S if self._entries else math.inf

    def flush(self) -> None:
        """Summarise all that waits."""
        with self._flushing:
            with self._lock:
                entries, self._entries = self._entries, []
                self._bytes = self._loose_bytes = 0
            sum_up(entry.batch for entry in entries)
            troubles = [trouble for alike in _alike(entries) if (trouble := _tried(alike)) is not None]
        if troubles:
            raise troubles[0]


def _alike(entries: list[Entry]) -> Iterator[list[Entry]]:
    """Runs of entries with one layout: mostly a single one. One that was summarised at once is by itself."""
    run: list[Entry] = []
    for entry in entries:
        if run and not _together(run[0], entry):
            yield run
            run = []
        run.append(entry)
    if run:
        yield run


def _together(first: Entry, entry: Entry) -> bool:
    if first.rows is None or entry.rows is None:
        return False
    return entry.buffer.reference.flattener is first.buffer.reference.flattener


def _tried(entries: list[Entry]) -> Exception | None:
    """Summarise them; what goes wrong with some is no reason to lose the others."""
    try:
        _summarise(entries)
    except Exception as error:
        for entry in entries:
            entry.buffer.unseen(entry.batch)
        return error
    return None


def _summarise(entries: list[Entry]) -> None:
    first = entries[0]
    if first.found is not None:
        first.buffer.summarised(entries, named(first.found), slice(0, len(first.batch)))
        return
    reference = entries[0].buffer.reference
    groups = list(_rounds(entries))
    sizes = [sum(len(entry.batch) for entry in group) for group in groups]
    rows = [entry.rows for entry in entries if entry.rows is not None]
    summary = summarise(rows, reference.flattener.layout, reference.sketcher, groups=sizes)
    offset = 0
    for group, size in zip(groups, sizes, strict=True):
        group[0].buffer.summarised(group, summary, slice(offset, offset + size))
        offset += size


def _rounds(entries: list[Entry]) -> Iterator[list[Entry]]:
    """Entries of one round each. Rounds may overlap where clients are asynchronous: then a round has several parts."""
    run: list[Entry] = []
    for entry in entries:
        if run and entry.buffer is not run[0].buffer:
            yield run
            run = []
        run.append(entry)
    if run:
        yield run
