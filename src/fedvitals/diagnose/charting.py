"""A run in the store -> its chart. Reads again only what is new, so a run that goes on can be looked at often."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedvitals.diagnose.chart import Chart, Gradients, Updates
from fedvitals.store.protocol import RunReader
from fedvitals.store.table import Ints, ParticipationTable, read_table
from fedvitals.vocabulary import STATISTICS, Layout, StepBlock, UpdateBlock

GRAVE = "WARNING"
MOST_LOGS = 1000
_UNIT_SCALE = np.float32(1 / 63.5)  # what one step of a unit's sketch is worth
Where = slice | Ints


class Charting:
    """Makes charts of one run, each as the run is when asked."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._blocks: dict[int, UpdateBlock] = {}

    def chart(self) -> Chart:
        """The run as it is now."""
        reader = self._reader
        clients, table = read_table(reader)
        layouts = reader.layouts()
        updates = self._updates(table, layouts)
        return Chart(
            run=reader.run(),
            clients=clients,
            rounds=tuple(reader.rounds()),
            participations=table,
            update_layouts=self._layouts_of(table.block),
            layouts=layouts,
            updates=updates,
            gradients=_gradients(reader.step_blocks(), clients, table, updates.layout) if updates else None,
            models=tuple(reader.model_blocks()),
            evaluations=tuple(reader.evaluations()),
            spans=tuple(span for span in reader.spans() if span.client is None),
            resources=tuple(reader.resources()),
            failures=tuple(reader.failures()),
            logs=tuple(reader.logs(level=GRAVE)[-MOST_LOGS:]),
            size_bytes=reader.size_bytes(),
        )

    def _layouts_of(self, blocks: Ints) -> Ints:
        known = {one.id: one.layout for one in self._blocks.values()}
        return np.array([known.get(number, -1) for number in blocks.tolist()], dtype=np.int64)

    def _updates(self, table: ParticipationTable, layouts: Sequence[Layout]) -> Updates | None:
        """Of the layout that most updates have; the others' shapes are for rules that look at shapes."""
        for block in self._reader.update_blocks(after=max(self._blocks, default=None)):
            self._blocks[block.id] = block
        sizes: dict[int, int] = {}
        for block in self._blocks.values():
            sizes[block.layout] = sizes.get(block.layout, 0) + len(block.stats)
        known = {layout.id: layout for layout in layouts}
        usual = max(sizes, key=lambda number: sizes[number], default=None)
        if usual is None or usual not in known:
            return None
        blocks = [block for block in self._blocks.values() if block.layout == usual]
        return _aligned(blocks, known[usual], _places(blocks, table))


def read_chart(reader: RunReader) -> Chart:
    """The run as it is now, once."""
    return Charting(reader).chart()


def _places(blocks: Sequence[UpdateBlock], table: ParticipationTable) -> Ints:
    """For each participation its row in the blocks laid end to end, -1 for none."""
    ids = np.array([block.id for block in blocks], dtype=np.int64)  # they grow
    counts = np.array([len(block.stats) for block in blocks], dtype=np.int64)
    starts = np.cumsum(counts) - counts
    index = np.clip(np.searchsorted(ids, table.block), 0, len(ids) - 1)
    inside = (ids[index] == table.block) & (table.block_row >= 0) & (table.block_row < counts[index])
    return np.where(inside, starts[index] + table.block_row, -1)


def _aligned(blocks: Sequence[UpdateBlock], layout: Layout, places: Ints) -> Updates:
    shares, whole_rows = _shares(blocks, places), bool((places >= 0).all())

    def lined_up(name: str, *shape: int, missing: float = np.nan, dtype: type[Any] = np.float32) -> NDArray[Any]:
        """Straight from the blocks to where each row belongs: these are the largest arrays of all."""
        arrays = [getattr(block, name) for block, _, _ in shares]
        whole = whole_rows and all(array is not None and array.shape[1] == shape[0] for array in arrays)
        rows = np.empty((len(places), *shape), dtype) if whole else np.full((len(places), *shape), missing, dtype)
        for (_, here, there), array in zip(shares, arrays, strict=True):
            if array is not None:
                rows[here, : array.shape[1]] = array[there]
        return rows

    kept = max((block.losses.shape[1] for block in blocks if block.losses is not None), default=0)
    layers, units, buckets = len(layout.layers), layout.units, sum(layout.sketch_buckets)
    with_units = any(block.unit_norms is not None for block in blocks)
    with_sketches = any(block.sketches is not None for block in blocks)
    return Updates(
        layout=layout,
        present=places >= 0,
        stats=lined_up("stats", layers, len(STATISTICS)),
        nonfinite=lined_up("nonfinite", layers, missing=0, dtype=np.int64),
        sketches=lined_up("sketches", buckets) if with_sketches else None,
        unit_norms=lined_up("unit_norms", units) if with_units else None,
        unit_sums=lined_up("unit_sums", units) if with_units else None,
        unit_sketches=lined_up("unit_sketches", units, 8) * _UNIT_SCALE if with_units else None,
        losses=lined_up("losses", kept),
        loss_steps=lined_up("loss_steps", kept, missing=-1, dtype=np.int64),
    )


def _shares(blocks: Sequence[UpdateBlock], places: Ints) -> list[tuple[UpdateBlock, Where, Where]]:
    """Of each block: the participations it tells of, and in which of its rows."""
    order = np.argsort(places, kind="stable")
    ends = np.cumsum([0, *(len(block.stats) for block in blocks)])
    bounds = np.searchsorted(places[order], ends)
    return [
        (block, _slice(order[low:high]), _slice(places[order[low:high]] - end))
        for block, low, high, end in zip(blocks, bounds[:-1], bounds[1:], ends[:-1], strict=True)
    ]


def _slice(rows: Ints) -> Where:
    """The same rows as a slice where they follow one another: those are copied at once."""
    follow = len(rows) > 0 and bool((np.diff(rows) == 1).all())
    return slice(int(rows[0]), int(rows[-1]) + 1) if follow else rows


def _gradients(
    found: Iterator[StepBlock], clients: Sequence[str], table: ParticipationTable, layout: Layout
) -> Gradients | None:
    blocks = [block for block in found if block.layout == layout.id]
    if not blocks:
        return None
    keys = zip((clients[number] for number in table.client), table.attempt.tolist(), strict=True)
    row_of = {key: row for row, key in enumerate(keys)}
    rows = [row_of.get(key, -1) for block in blocks for key in zip(block.clients, block.attempts, strict=True)]
    return Gradients(
        layout=layout,
        row=np.array(rows, dtype=np.int64),
        step=np.array([step for block in blocks for step in block.steps], dtype=np.int64),
        norms=np.concatenate([block.stats[:, :, 0] for block in blocks]),
    )
