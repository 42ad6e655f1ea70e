"""The updates of one round on their way to becoming records.

Rows wait in `pending`. A participation whose row was summarised before its session ended is simply written again when
it does; a cohort that came in parts gets its cosines when the last part is there.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Collection, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from fedvitals.capture.batch import Batch, DraftBatch, Findings, GradientRows, JoinedBatch, Told, sum_up
from fedvitals.capture.draft import Draft
from fedvitals.capture.losses import kept_losses
from fedvitals.capture.models import Reference
from fedvitals.capture.pending import MOST_BYTES, Entry
from fedvitals.capture.tensors import Row, Snapshot, Source, Summary, bare, joined, kernel
from fedvitals.store.cohorts import singly
from fedvitals.vocabulary import Blob, Layout, Level, Outcome, Participation, Record, StepBlock, UpdateBlock

if TYPE_CHECKING:
    from fedvitals.capture.recorder import Recorder

BLOCK_ROWS = 128
MOST_REMEMBERED = 4_096  # participations of a round whose cosine, or outcome, can still be put right at its end
ROW_BYTES = 700  # a Participation in the queue, roughly
MANY_ROWS, MUCH_BYTES = 32, 256 << 10  # of a round whose updates are not kept waiting


class CohortBuffer:
    """Collects the updates of one round; any thread may add."""

    def __init__(self, recorder: Recorder, reference: Reference, round_number: int) -> None:
        self.reference = reference
        self._recorder = recorder
        self._round = round_number
        self._lock = threading.Lock()
        self._added = 0  # participations handed to `pending`
        self._parts: list[tuple[list[Told], np.ndarray | None]] = []
        self._summarised = 0
        self._unseen = 0
        self._finished = False
        self._forgotten = False  # what was written: there was too much of it
        self._rejected: set[str] = set()
        self._sees_updates = recorder.settings.level != Level.SEALED
        self.expected = sys.maxsize  # clients of the round, where that is known

    def add_state(self, draft: Draft, source: Source) -> None:
        """A client's model after training. ValueError when it has other layers than the round's model."""
        reference, batch = self.reference, DraftBatch(draft)
        if not self._sees_updates:
            self.add_batch(batch, reference.flattener.difference(source, reference.row).unsqueeze(0))
            return
        pending = self._recorder.pending
        place = pending.row(reference.flattener.size) if reference.row.is_cpu else None
        row = reference.flattener.difference(source, reference.row, place)
        self._added += 1
        pending.add(Entry(self, batch, row.unsqueeze(0)), shelved=row is place)

    def add_batch(self, batch: Batch, updates: Row, *, borrowed: bool = False) -> None:
        """Differences [clients, size], which nobody writes to from now on, unless they are borrowed."""
        if not self._sees_updates:
            self.keep(batch)
            return
        self._added += len(batch)
        entry = self._summarised_at_once(batch, updates) or Entry(self, batch, updates)
        self._recorder.pending.add(entry, borrowed=borrowed)

    def keep(self, batch: Batch) -> None:
        """Participations of whose updates nothing will be found out."""
        sum_up([batch])
        with self._lock:
            records = batch.records(slice(0, len(batch)), None)
            self._recorder.emit(records, ROW_BYTES * len(batch))
            self._parts.append((records, None))
            self._unseen += len(batch)

    def _summarised_at_once(self, batch: Batch, updates: Row) -> Entry | None:
        """A whole round of many small updates, which lie in the cache now: kept until later, they would push out of it
        what the next round works on, and cost the training more than their statistics do."""
        whole = len(batch) >= max(self.expected, MANY_ROWS) and MUCH_BYTES <= updates.nbytes <= MOST_BYTES
        if not whole or self._recorder.settings.keep_updates or not kernel.takes([updates]):
            return None
        reference, room = self.reference, self._recorder.pending.room
        found = kernel.find_out([updates], reference.flattener.layout, reference.sketcher, [len(batch)], room)
        return Entry(self, batch, None, found)  # and not even a view of the updates, which would hold on to them

    def finish(self) -> None:
        """The round is over: once its last part is summarised, its cosines are put right."""
        with self._lock:
            self._finished = True
            self._settle()

    def reject(self, clients: Collection[str]) -> None:
        """These were left out of the aggregate: so it is written, again where it was written before."""
        with self._lock:
            self._rejected.update(clients)
            if self._forgotten:
                found = f"a round of more than {MOST_REMEMBERED:,} participations has to be told before it is over"
                self._recorder.trouble("RoundSession.rejected", ValueError(found))
            for participations, _ in self._parts:
                before = singly(participations)
                participations[:] = self._judged(before)
                changed = [new for old, new in zip(before, participations, strict=True) if new is not old]
                if changed:
                    self._recorder.emit(changed)

    def _judged(self, participations: Sequence[Told]) -> Sequence[Told]:
        if not self._rejected:
            return participations
        values: dict[str, Any] = {"outcome": Outcome.REJECTED.value, "applied_version": None, "staleness": None}
        return [one._replace(**values) if one.client in self._rejected else one for one in singly(participations)]

    def add_steps(self, draft: Draft) -> None:
        """Only the sampled steps, of a participation that submits nothing."""
        steps = self._step_block(DraftBatch(draft)) if self._sees_updates else None
        if steps is not None:
            self._recorder.emit([steps], 64 + steps.stats.nbytes)

    def amend(self, draft: Draft) -> None:
        """The session of a participation ended: if it was written before, write it again."""
        with self._lock:
            if not draft.written:
                return
            record = draft.record()
            for participations, _ in self._parts:
                for place, known in enumerate(participations):
                    if isinstance(known, Participation) and known[:2] == record[:2]:
                        record = participations[place] = record._replace(cosine=known.cosine)  # put right by now
            self._recorder.emit([record])

    def summarised(self, entries: list[Entry], summary: Summary, part: slice) -> None:
        """What `pending` found out about some rows of this round."""
        batch = entries[0].batch if len(entries) == 1 else JoinedBatch([entry.batch for entry in entries])
        with self._lock:
            steps = self._step_block(batch)  # first: it tells drafts which of their steps went bad
            written: list[Told] = []
            for start in range(0, len(batch), BLOCK_ROWS):
                own = slice(start, min(start + BLOCK_ROWS, len(batch)))
                place = slice(part.start + own.start, part.start + own.stop)
                written += self._emit_block(batch, own, summary, place, steps if start == 0 else None)
            if self._recorder.settings.keep_updates:
                self._keep_updates(written, joined([entry.rows for entry in entries if entry.rows is not None]))
            self._parts.append((written, None if summary.sketches is None else summary.sketches[part]))
            self._summarised += len(batch)
            self._settle()

    def reported(self, participation: Participation, sketches: np.ndarray) -> None:
        """A client of this round that summarised its own update: it belongs to the cohort all the same."""
        with self._lock:
            self._parts.append(([participation], sketches))
            self._added += 1
            self._summarised += 1
            self._settle()

    def unseen(self, batch: Batch) -> None:
        """Nothing could be found out about these updates: their participations are written without."""
        self.keep(batch)
        with self._lock:
            self._summarised += len(batch)
            self._settle()

    def compare(self) -> None:
        """Put the cosines right for what is there by now, before the round is over."""
        with self._lock:
            self._correct()

    def _settle(self) -> None:
        """Nothing more will come of it. What was written is remembered for as long as somebody holds the round, who may
        still say what was left out of it; sketches are not, nor is more than fits."""
        if self._finished and self._summarised >= self._added:
            self._correct()
            self._forgotten = self._summarised + self._unseen > MOST_REMEMBERED
            self._parts = [] if self._forgotten else [(some, None) for some, _ in self._parts]

    def _correct(self) -> None:
        known = [(some, sketches) for some, sketches in self._parts if sketches is not None]
        if len(known) < 2 or self._summarised > MOST_REMEMBERED:
            return
        for some, _ in known:
            some[:] = singly(some)
        records: list[Any] = [record for some, _ in known for record in some]
        right = _corrected(records, np.concatenate([sketches for _, sketches in known]))
        self._recorder.emit(right)
        following = iter(right)
        for some, _ in known:
            some[:] = islice(following, len(some))

    def _emit_block(
        self, batch: Batch, own: slice, summary: Summary, part: slice, taken: StepBlock | None
    ) -> Sequence[Told]:
        """Some of a batch, with the steps that were `taken` of it: all in one go, which is all that the queue is asked
        for."""
        number = self._recorder.next_block()
        losses, steps = kept_losses(batch.step_losses_of(own))
        layout = self.reference.flattener.layout.id
        block = UpdateBlock(number, self._round, layout, losses=losses, loss_steps=steps, **_cut(summary, part))
        participations = self._judged(batch.records(own, _findings(summary, part, number)))
        size = _size(block) + ROW_BYTES * (own.stop - own.start)
        records: list[Record] = [block, *participations]
        if taken is not None:
            records, size = [taken, *records], size + 64 + taken.stats.nbytes
        self._recorder.emit(records, size)
        return participations

    def _step_block(self, batch: Batch) -> StepBlock | None:
        layout = self.reference.flattener.layout
        taken = list(batch.gradients())
        if not taken:
            return None
        stats = [_placed(rows, layout) for rows in taken]
        if len(taken) == 1:
            clients, attempts, steps = tuple(taken[0].clients), tuple(taken[0].attempts), tuple(taken[0].steps)
            return StepBlock(self._round, layout.id, clients, attempts, steps, stats[0])
        return StepBlock(
            self._round,
            layout.id,
            tuple(chain.from_iterable(rows.clients for rows in taken)),
            tuple(chain.from_iterable(rows.attempts for rows in taken)),
            tuple(chain.from_iterable(rows.steps for rows in taken)),
            np.concatenate(stats),
        )

    def _keep_updates(self, records: list[Told], rows: Row) -> None:
        for record, row in zip(singly(records), rows.clone(), strict=True):
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
    norms = summary.norms[part].copy()  # which outlive the rest of the summary
    bad = np.zeros(len(norms), np.int64) if summary.nonfinite is None else summary.nonfinite[part].sum(1, np.int64)
    cosines: Any = [None] * len(norms) if summary.cosines is None else summary.cosines[part].astype(np.float64)
    if summary.cosines is not None and np.isnan(cosines).any():
        cosines = [None if cosine != cosine else cosine for cosine in cosines.tolist()]
    return Findings(norms, cosines, bad, block)


def _placed(rows: GradientRows, layout: Layout) -> np.ndarray:
    """The statistics in the order of the round's layers, NaN for those that have no gradient."""
    if rows.layers is None:
        return rows.stats
    layers = [layer.name for layer in layout.layers]
    if rows.layers == layers:
        return rows.stats
    placed = np.full((len(rows.steps), len(layers), rows.stats.shape[-1]), np.nan, np.float32)
    names, where = rows.layers, {name: i for i, name in enumerate(layers)}
    known = [i for i, name in enumerate(names) if name in where]
    if len(known) < len(names):  # one of the two may be compiled, or go to several devices
        names, where = list(map(bare, names)), {bare(name): i for i, name in enumerate(layers)}
        known = [i for i, name in enumerate(names) if name in where]
    placed[:, [where[names[i]] for i in known]] = rows.stats[:, known]
    return placed


def _corrected(records: list[Participation], sketches: np.ndarray) -> list[Participation]:
    """With the cosine of each to the mean of all others of the round, from the sketches: right within their error."""
    norms = np.array([record.update_norm for record in records], np.float64)
    vectors = sketches.astype(np.float64)
    vectors *= np.where(np.isfinite(norms), norms, 0.0)[:, None]
    others = vectors.sum(0) - vectors
    with np.errstate(invalid="ignore", divide="ignore"):
        lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(others, axis=1)
        cosines = np.clip((vectors * others).sum(1) / lengths, -1, 1).tolist()
    return [
        record._replace(cosine=None if cosine != cosine else cosine)
        for record, cosine in zip(records, cosines, strict=True)
    ]
