"""The models of a run as the recorder knows them: layouts, sketchers, and the global weights round by round.

This module speaks of tensors only through `capture.tensors`, so it can be imported where torch is already in use.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from fedvitals.capture.tensors import FlatRow, Flattener, Sketcher, Snapshot, Source, distance, summarise
from fedvitals.vocabulary import Blob, ModelBlock

if TYPE_CHECKING:
    from fedvitals.capture.recorder import Recorder
    from fedvitals.capture.tensors import Row


MOST_RECENT = 64  # versions that a late client may still be judged by
RECENT_BYTES = 64 * 2**20


class Reference:
    """The model that a round started from: what updates are differences from."""

    def __init__(
        self, flattener: Flattener, sketcher: Sketcher | None, row: Row, version: int, fingerprint: str
    ) -> None:
        self.flattener = flattener
        self.sketcher = sketcher
        self.row = row
        self.version = version
        self.fingerprint = fingerprint


class Models:
    """Remembers layouts, the first and the last model, and the module to look at once more when the run closes."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._flatteners: list[tuple[Flattener, Sketcher | None]] = []
        self._first: Row | None = None
        self._last: Row | None = None
        self._module: weakref.ref[Any] | None = None
        self._recent: OrderedDict[int, Reference] = OrderedDict()
        self.latest_version = -1

    def flattener(self, source: Source) -> tuple[Flattener, Sketcher | None]:
        """The flattener for this kind of model: the one in use, or a new one when the shapes are new."""
        number = len(self._flatteners)
        new = source.flattener.numbered(number) if isinstance(source, FlatRow) else Flattener(source, number)
        for known in self._flatteners:
            if known[0].layout.layers == new.layout.layers:
                return known
        sketcher = Sketcher(new.layout, new.device) if self._recorder.settings.sketches else None
        self._flatteners.append((new, sketcher))
        self._recorder.emit([new.layout])
        return self._flatteners[-1]

    def reference(self, source: Source, round_number: int, version: int) -> Reference:
        """Take in the global model at a round's start: its statistics, its drift, and a copy to keep."""
        flattener, sketcher = self._same_or_new(source)
        row = flattener.row(source)
        reference = Reference(flattener, sketcher, row, version, flattener.fingerprint(row))
        self._emit_statistics(reference, round_number)
        if self._recorder.settings.keep_models:
            self._keep(source, reference, round_number)
        self._module = _weak(source)
        self._remember(reference)
        return reference

    def at_version(self, version: int | None) -> Reference | None:
        """A recent version of the global model; the latest for None; None when it is gone or there was none."""
        return self._recent.get(self.latest_version if version is None else version)

    def _remember(self, reference: Reference) -> None:
        self.latest_version = reference.version
        self._recent[reference.version] = reference
        room = max(1, RECENT_BYTES // max(4 * reference.flattener.size, 1))
        while len(self._recent) > min(room, MOST_RECENT):
            self._recent.popitem(last=False)

    def close(self) -> None:
        """The last round's outcome, which no later round has looked at."""
        module = self._module() if self._module is not None else None
        if module is None or self._last is None:
            return
        flattener, _ = self._same_or_new(module)
        row = flattener.row(module)
        if row.shape == self._last.shape and distance(row, self._last) == 0.0:
            return
        version = next(self._recorder.versions)
        self._emit_statistics(Reference(flattener, None, row, version, flattener.fingerprint(row)), -1)

    def _same_or_new(self, source: Source) -> tuple[Flattener, Sketcher | None]:
        if self._flatteners and self._flatteners[-1][0].fits(source):
            return self._flatteners[-1]
        return self.flattener(source)

    def _emit_statistics(self, reference: Reference, round_number: int) -> None:
        row, layout = reference.row, reference.flattener.layout
        summary = summarise(row.unsqueeze(0), layout)
        same = self._first is not None and self._first.shape == row.shape
        block = ModelBlock(
            version=reference.version,
            round=round_number,
            layout=layout.id,
            stats=summary.stats[0],
            nonfinite=None if summary.nonfinite is None else summary.nonfinite[0],
            drift_first=distance(row, self._first) if same and self._first is not None else 0.0,
            drift_last=distance(row, self._last) if same and self._last is not None else 0.0,
            fingerprint=reference.fingerprint,
        )
        self._recorder.emit([block], 64 + summary.stats.nbytes)
        if not same:
            self._first = row
        self._last = row

    def _keep(self, source: Source, reference: Reference, round_number: int) -> None:
        snapshot = Snapshot(source, reference.flattener, reference.row)
        self._recorder.keep_blob(
            snapshot.to_bytes,
            snapshot.size_bytes,
            lambda name: Blob(name, "model", snapshot.size_bytes, version=reference.version, round=round_number),
        )


def _weak(source: Source) -> weakref.ref[Any] | None:
    return weakref.ref(source) if hasattr(source, "state_dict") or isinstance(source, FlatRow) else None
