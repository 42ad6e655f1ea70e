"""Updates of one round on their way to becoming records.

Rows are summarised together: when the round ends, when the buffer is full, or when the oldest row is a fifth of a
second old, so that a killed process loses little. A participation whose row was summarised before its session ended is
simply written again when it does.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from fedvitals.capture.batch import Batch, DraftBatch, Findings, GradientRows, JoinedBatch
from fedvitals.capture.draft import Draft
from fedvitals.capture.losses import kept_losses
from fedvitals.capture.models import Reference
from fedvitals.capture.tensors import Row, Rows, Snapshot, Source, Summary, summarise
from fedvitals.vocabulary import Blob, Level, Participation, Record, StepBlock, UpdateBlock

if TYPE_CHECKING:
    from fedvitals.capture.recorder import Recorder

BLOCK_ROWS = 64
OLDEST_S = 0.2
MOST_REMEMBERED = 4_096  # participations of a round whose cosine can still be put right at its end
MANY = 16  # clients that are worth a summary of their own
ROW_BYTES = 700  # a Participation in the queue, roughly


class CohortBuffer:
    """Collects the updates of one round; any thread may add."""

    def __init__(self, recorder: Recorder, reference: Reference, round_number: int) -> None:
        self.reference = reference
        self._recorder = recorder
        self._round = round_number
        self._lock = threading.Lock()
        self._rows = Rows(reference.flattener, reference.row)
        self._waiting: list[Batch] = []
        self._oldest_s = 0.0
        self._flushes = 0
        self._done: dict[tuple[str, int], tuple[Participation, np.ndarray]] = {}
        self._sees_updates = recorder.settings.level != Level.SEALED
        recorder.age(self)

    def add_state(self, draft: Draft, source: Source) -> None:
        """A client's model after training. ValueError when it has other layers than the round's model."""
        with self._lock:
            self._make_room()
            self._rows.add_state(source)
            self._wait(DraftBatch(draft))

    def add_batch(self, batch: Batch, updates: Row) -> None:
        """Differences [clients, size]: of many clients summarised where they lie, of a few when there are more."""
        with self._lock:
            if len(batch) >= MANY:
                self._summarise(batch, updates)
                return
            if self._rows.room < len(batch):
                self._flush()
            if self._rows.room < len(batch):
                self._summarise(batch, updates)
                return
            self._rows.add_updates(updates)
            self._wait(batch)

    def _make_room(self) -> None:
        if self._rows.full:
            self._flush()

    def _wait(self, batch: Batch) -> None:
        if not self._waiting:
            self._oldest_s = time.monotonic()
        self._waiting.append(batch)

    def flush_if_old(self) -> None:
        if self._waiting and time.monotonic() - self._oldest_s > OLDEST_S:
            with self._lock:
                self._flush()

    def finish(self) -> None:
        """The round is over: write what waits, and put the cosines right if the cohort came in parts."""
        with self._lock:
            self._flush()
            if self._flushes > 1 and self._done:
                self._recorder.emit(_corrected(list(self._done.values())))
            self._done.clear()

    def add_steps(self, draft: Draft) -> None:
        """Only the sampled steps, of a participation that submits nothing."""
        steps = self._step_block(DraftBatch(draft)) if self._sees_updates else None
        if steps is not None:
            self._recorder.emit([steps], 64 + steps.stats.nbytes)

    def amend(self, draft: Draft) -> None:
        """The session of a participation ended: if it was written before, write it again."""
        with self._lock:
            if not draft.statistics:
                return
            record, key = draft.record(), (draft.client, draft.attempt)
            if key in self._done:
                self._done[key] = (record, self._done[key][1])
            self._recorder.emit([record])

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._summarise(JoinedBatch(waiting), self._rows.take())

    def _summarise(self, batch: Batch, rows: Row) -> None:
        self._flushes += 1
        if not self._sees_updates:
            self._recorder.emit(batch.records(slice(None), None))
            return
        summary = summarise(rows, self.reference.flattener.layout, self.reference.sketcher)
        steps = self._step_block(batch)  # first: it tells drafts which of their steps went bad
        for start in range(0, len(batch), BLOCK_ROWS):
            self._emit_block(batch, summary, slice(start, min(start + BLOCK_ROWS, len(batch))))
        if steps is not None:
            self._recorder.emit([steps], 64 + steps.stats.nbytes)
        if self._recorder.settings.keep_updates:
            self._keep_updates(batch, rows)

    def _emit_block(self, batch: Batch, summary: Summary, part: slice) -> None:
        number = self._recorder.next_block()
        losses, steps = kept_losses(batch.step_losses_of(part))
        layout = self.reference.flattener.layout.id
        block = UpdateBlock(number, self._round, layout, losses=losses, loss_steps=steps, **_cut(summary, part))
        participations = batch.records(part, _findings(summary, part, number))
        if summary.sketches is not None and len(self._done) < MOST_REMEMBERED:
            for record, sketch in zip(participations, summary.sketches[part], strict=True):
                self._done[record[0], record[1]] = (record, sketch)
        records: list[Record] = [block, *participations]
        self._recorder.emit(records, _size(block) + ROW_BYTES * len(participations))

    def _step_block(self, batch: Batch) -> StepBlock | None:
        layers = self.reference.flattener.layout.layers
        taken = list(batch.gradients())
        if not taken:
            return None
        return StepBlock(
            self._round,
            self.reference.flattener.layout.id,
            tuple(client for rows in taken for client in rows.clients),
            tuple(attempt for rows in taken for attempt in rows.attempts),
            tuple(step for rows in taken for step in rows.steps),
            np.concatenate([_placed(rows, [layer.name for layer in layers]) for rows in taken]),
        )

    def _keep_updates(self, batch: Batch, rows: Row) -> None:
        for record, row in zip(batch.records(slice(None), None), rows.clone(), strict=True):
            self._keep_update(record, Snapshot(None, self.reference.flattener, row))

    def _keep_update(self, of: Participation, snapshot: Snapshot) -> None:
        size = snapshot.size_bytes
        self._recorder.keep_blob(
            snapshot.to_bytes,
            size,
            lambda name: Blob(name, "update", size, round=of.round, client=of.client, attempt=of.attempt),
        )


def _cut(summary: Summary, part: slice) -> dict[str, Any]:
    names = ("stats", "nonfinite", "sketches", "unit_norms", "unit_sums", "unit_sketches")
    return {name: None if (array := getattr(summary, name)) is None else array[part] for name in names}


def _size(block: UpdateBlock) -> int:
    arrays = (block.stats, block.nonfinite, block.sketches, block.unit_norms, block.unit_sums, block.unit_sketches)
    return sum(array.nbytes for array in arrays if array is not None)


def _findings(summary: Summary, part: slice, block: int) -> Findings:
    norms = summary.norms[part].tolist()
    bad = [0] * len(norms) if summary.nonfinite is None else summary.nonfinite[part].sum(1).tolist()
    cosines = [None] * len(norms) if summary.cosines is None else summary.cosines[part].tolist()
    return Findings(norms, [None if c is None or c != c else c for c in cosines], bad, block)


def _placed(rows: GradientRows, layers: list[str]) -> np.ndarray:
    """The statistics in the order of the round's layers, NaN for those that have no gradient."""
    if rows.layers is None or rows.layers == layers:
        return rows.stats
    placed = np.full((len(rows.steps), len(layers), rows.stats.shape[-1]), np.nan, np.float32)
    where = {name: i for i, name in enumerate(layers)}
    known = [i for i, name in enumerate(rows.layers) if name in where]
    placed[:, [where[rows.layers[i]] for i in known]] = rows.stats[:, known]
    return placed


def _corrected(done: list[tuple[Participation, np.ndarray]]) -> list[Participation]:
    """With the cosine of each to the mean of all others of the round, from the sketches: right within their error."""
    norms = np.array([record.update_norm for record, _ in done], np.float64)
    vectors = np.stack([sketch for _, sketch in done]).astype(np.float64)
    vectors *= np.where(np.isfinite(norms), norms, 0.0)[:, None]
    others = vectors.sum(0) - vectors
    with np.errstate(invalid="ignore", divide="ignore"):
        lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(others, axis=1)
        cosines = np.clip((vectors * others).sum(1) / lengths, -1, 1).tolist()
    return [
        record._replace(cosine=None if cosine != cosine else cosine)
        for (record, _), cosine in zip(done, cosines, strict=True)
    ]
