"""The models of a run as the recorder knows them: layouts, sketchers, and the global weights round by round.

This module speaks of tensors only through `capture.tensors`, so it can be imported where torch is already in use.
"""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections import OrderedDict
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from fedvitals.capture.pending import OLDEST_S
from fedvitals.capture.probe import Probes
from fedvitals.capture.tensors import (
    Choice,
    FlatRow,
    Flattener,
    Shelf,
    Sketcher,
    Snapshot,
    Source,
    distances,
    kernel,
    nonfinite,
    summarise,
    taken,
    unchanged,
)
from fedvitals.vocabulary import Blob, ModelBlock

if TYPE_CHECKING:
    from fedvitals.capture.recorder import Recorder
    from fedvitals.capture.tensors import Row


MOST_RECENT = 64  # versions that a late client may still be judged by
RECENT_BYTES = 64 * 2**20
WAITING_BYTES = 16 * 2**20


class Reference:
    """The model that a round started from: what updates are differences from."""

    def __init__(self, flattener: Flattener, sketcher: Sketcher | None, row: Row, version: int) -> None:
        self.flattener = flattener
        self.sketcher = sketcher
        self.row = row
        self.version = version
        self.raw_bytes = flattener.raw_bytes
        self._fingerprint: str | None = None

    @property
    def fingerprint(self) -> str:
        """Worked out when somebody asks: mostly that is the recorder's own thread, for many models at once. Without a
        lock, which a child that was forked meanwhile would wait for: two who ask at once find the same."""
        if self._fingerprint is None:
            self._fingerprint = self.flattener.fingerprint(self.row)
        return self._fingerprint

    def fingerprint_of(self, source: Source) -> str:
        """Of another model of this layout. ValueError when it is of another one."""
        if self.flattener.surely_is(source, self.row):
            return self.fingerprint
        row = self.flattener.row(source)
        return self.fingerprint if unchanged(row, self.row) else self.flattener.fingerprint(row)


class Waiting(NamedTuple):
    """A model that is not yet summarised, the round it begins, and what is to be kept of it."""

    reference: Reference
    round: int
    snapshot: Snapshot | None


class Models:
    """Remembers layouts, the first and the last model, and the module to look at once more when the run closes."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._flatteners: list[tuple[Flattener, Sketcher | None]] = []
        self._shelf = Shelf()
        self._first: Row | None = None
        self._last: Row | None = None
        self._waiting: list[Waiting] = []
        self._oldest_s = 0.0
        self._lock = threading.Lock()
        self._naming = threading.Lock()  # so that no two layouts get one number
        self._module: weakref.ref[Any] | None = None
        self.choice: Choice | None = None  # another process's, of what the layers of a model are
        self._recent: OrderedDict[int, Reference] = OrderedDict()
        self.probes = Probes(recorder)
        self.latest_version = -1

    def flattener(self, source: Source) -> tuple[Flattener, Sketcher | None]:
        """The flattener for this kind of model: the one in use, or a new one when the shapes are new."""
        with self._naming:
            number = len(self._flatteners)
            if isinstance(source, FlatRow):
                new = source.flattener.numbered(number)
            else:
                new = Flattener(source, number, self.choice)
            for known in self._flatteners:
                if known[0].layout.layers == new.layout.layers:
                    return known
            sketcher = Sketcher(new.layout, new.device) if self._recorder.settings.sketches else None
            self._flatteners.append((new, sketcher))
            self._recorder.emit([new.layout])
            return self._flatteners[-1]

    def reference(self, source: Source, round_number: int, version: int) -> Reference:
        """Take in the global model at a round's start: its statistics, its drift, and a copy to keep."""
        state = source if isinstance(source, FlatRow) else taken(source)
        flattener, sketcher, row = self._copied(state) or self._copied_in_steps(source, state)
        reference = Reference(flattener, sketcher, row, version)
        if not row.is_cpu:
            _ = reference.fingerprint  # a device is asked by who trains on it, and a model of no values told at once
        self._wait(reference, round_number, state)
        self._module = _weak(source)
        self._remember(reference)
        return reference

    def _copied(self, state: Source) -> tuple[Flattener, Sketcher | None, Row] | None:
        """Straight onto the shelf, where it is a model as there was before: that is so in nearly every round."""
        if not self._flatteners:
            return None
        flattener, sketcher = self._flatteners[-1]
        with self._lock:
            row = flattener.copied(state, self._shelf.empty_row)
        return None if row is None else (flattener, sketcher, row)

    def _copied_in_steps(self, source: Source, state: Source) -> tuple[Flattener, Sketcher | None, Row]:
        flattener, sketcher = self._same_or_new(source, state)
        found = state.row if isinstance(state, FlatRow) else flattener.row(state)
        with self._lock:
            row = self._shelf.row(found)
        if row is found and isinstance(state, FlatRow):  # no room: then a copy elsewhere
            row = flattener.row(state)
        return flattener, sketcher, row

    def at_version(self, version: int | None) -> Reference | None:
        """A recent version of the global model; the latest for None; None when it is gone or there was none."""
        return self._recent.get(self.latest_version if version is None else version)

    def nonfinite(self, source: Source) -> Row:
        """How many values of a model, whatever its layers, are not finite. Nothing waits for its device."""
        return nonfinite([source.row] if isinstance(source, FlatRow) else source)

    def _remember(self, reference: Reference) -> None:
        self.latest_version = reference.version
        self._recent[reference.version] = reference
        room = max(1, RECENT_BYTES // max(4 * reference.flattener.size, 1))
        while len(self._recent) > min(room, MOST_RECENT):
            self._recent.popitem(last=False)

    def close(self) -> None:
        """The last round's outcome, which no later round has looked at."""
        self.probes.close()
        self._look_again()
        self._shelf = Shelf()
        self._recent.clear()

    def _look_again(self) -> None:
        self.flush()
        module = self._module() if self._module is not None else None
        if module is None or self._last is None:
            return
        flattener, _ = self._same_or_new(module, module)
        row = flattener.row(module)
        if row.shape == self._last.shape and unchanged(row, self._last):
            return
        version = next(self._recorder.versions)
        self._wait(Reference(flattener, None, row, version), -1, module)
        self.flush()

    @property
    def size_bytes(self) -> int:
        """Of the models that are remembered; those that wait are among them."""
        rows = {id(one.row): one.row for one in list(self._recent.values())}
        rows |= {id(row): row for row in (self._first, self._last) if row is not None}
        return self._shelf.size_bytes + sum(row.nbytes for row in rows.values() if not self._shelf.holds(row))

    @property
    def kernel(self) -> bool:
        """Whether statistics are the compiled kernel's or torch's."""
        return kernel.in_use()

    @property
    def due_s(self) -> float:
        """When the oldest will have waited long enough, on the monotonic clock; infinity when none waits."""
        return self._oldest_s + OLDEST_S if self._waiting else math.inf

    def flush(self) -> None:
        """Statistics of the models taken in since the last time, all at once."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
            for number, group in groupby(waiting, key=lambda one: one.reference.flattener.layout.id):
                self._summarise(number, list(group))

    def _wait(self, reference: Reference, round_number: int, state: Source) -> None:
        kept = self._recorder.settings.keep_models
        snapshot = Snapshot(state, reference.flattener, reference.row) if kept else None
        with self._lock:
            if not self._waiting:
                self._oldest_s = time.monotonic()
            self._waiting.append(Waiting(reference, round_number, snapshot))
            full = len(self._waiting) * reference.flattener.size * 4 > WAITING_BYTES
        if full:
            self.flush()

    def _summarise(self, layout_id: int, waiting: list[Waiting]) -> None:
        for one in waiting:
            if one.snapshot is not None:
                self._keep(one.snapshot, one.reference.version, one.round)
        rows = [one.reference.row for one in waiting]
        if self._first is None or self._last is None or self._last.shape != rows[0].shape:
            self._first = self._last = rows[0]
        summary = summarise([row.unsqueeze(0) for row in rows], waiting[0].reference.flattener.layout)
        drifts = distances(rows, self._first), distances(rows, self._last, following=True)
        self._last = rows[-1]
        blocks = [
            ModelBlock(
                version=one.reference.version,
                round=one.round,
                layout=layout_id,
                stats=summary.stats[index],
                nonfinite=None if summary.nonfinite is None else summary.nonfinite[index],
                drift_first=drifts[0][index],
                drift_last=drifts[1][index],
                fingerprint=one.reference.fingerprint,
            )
            for index, one in enumerate(waiting)
        ]
        self._recorder.emit(blocks, 64 * len(blocks) + summary.stats.nbytes)

    def _same_or_new(self, source: Source, state: Source) -> tuple[Flattener, Sketcher | None]:
        """The last one where it fits; a new one is made of the source itself, which knows what is trained."""
        if self._flatteners and self._flatteners[-1][0].fits(state, exactly=True):
            return self._flatteners[-1]
        return self.flattener(source)

    def _keep(self, snapshot: Snapshot, version: int, round_number: int) -> None:
        self._recorder.keep_blob(
            snapshot.to_bytes,
            snapshot.size_bytes,
            lambda name: Blob(name, "model", snapshot.size_bytes, version=version, round=round_number),
        )


def _weak(source: Source) -> weakref.ref[Any] | None:
    return weakref.ref(source) if hasattr(source, "state_dict") or isinstance(source, FlatRow) else None
