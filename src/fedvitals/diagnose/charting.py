"""A run in the store -> its chart. Reads again only what is new, so a run that goes on can be looked at often."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedvitals.diagnose.chart import Chart, Floats, Gradients, Ints, Participations, Updates
from fedvitals.store.protocol import RunReader
from fedvitals.vocabulary import CLIENT_PHASES, Layout, Participation, StepBlock, UpdateBlock

GRAVE = "WARNING"
MOST_LOGS = 1000
_UNIT_SCALE = np.float32(1 / 63.5)  # what one step of a unit's sketch is worth
_PLACE = {name: place for place, name in enumerate(Participation._fields)}
_PLAIN = (
    "samples",
    "steps",
    "epochs",
    "loss",
    "first_loss",
    "last_loss",
    "accuracy",
    "bad_step",
    "good_step",
    "update_norm",
    "cosine",
    "nonfinite",
    "staleness",
    "raw_bytes_down",
    "wire_bytes_down",
    "raw_bytes_up",
    "wire_bytes_up",
    "peak_memory_bytes",
)


class Charting:
    """Makes charts of one run, each as the run is when asked."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._blocks: dict[int, UpdateBlock] = {}

    def chart(self) -> Chart:
        """The run as it is now."""
        reader = self._reader
        rows = sorted(reader.iterate_participations(), key=lambda one: one.round)
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(Participation._fields)
        clients = tuple(dict.fromkeys(columns[_PLACE["client"]]))
        layouts = reader.layouts()
        updates = self._updates(columns, layouts)
        return Chart(
            run=reader.run(),
            clients=clients,
            rounds=tuple(reader.rounds()),
            participations=_participations(columns, clients, {one.id: one.layout for one in self._blocks.values()}),
            layouts=layouts,
            updates=updates,
            gradients=_gradients(reader.step_blocks(), columns, updates.layout) if updates else None,
            models=tuple(reader.model_blocks()),
            evaluations=tuple(reader.evaluations()),
            spans=tuple(span for span in reader.spans() if span.client is None),
            resources=tuple(reader.resources()),
            failures=tuple(reader.failures()),
            logs=tuple(reader.logs(level=GRAVE)[-MOST_LOGS:]),
            size_bytes=reader.size_bytes(),
        )

    def _updates(self, columns: Sequence[Sequence[Any]], layouts: Sequence[Layout]) -> Updates | None:
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
        return _aligned(blocks, known[usual], _places(blocks, columns))


def read_chart(reader: RunReader) -> Chart:
    """The run as it is now, once."""
    return Charting(reader).chart()


def _numbers(values: Sequence[Any]) -> Floats:
    return np.array(values, dtype=np.float64)  # None becomes NaN


def _whole(values: Sequence[Any], missing: int = -1) -> Ints:
    return np.array([missing if one is None else one for one in values], dtype=np.int64)


def _participations(
    columns: Sequence[Sequence[Any]], clients: tuple[str, ...], layouts: Mapping[int, int]
) -> Participations:
    def column(name: str) -> Sequence[Any]:
        return columns[_PLACE[name]]

    index = {name: number for number, name in enumerate(clients)}
    models = {name: number for number, name in enumerate(dict.fromkeys(column("received"))) if name is not None}
    phases = [_numbers(column(f"{phase}_s")) for phase in CLIENT_PHASES]
    return Participations(
        client=_whole([index[name] for name in column("client")]),
        attempt=_whole(column("attempt")),
        round=_whole(column("round")),
        base_version=_whole(column("base_version")),
        outcome=np.array(column("outcome"), dtype="U8"),
        start_s=_numbers(column("start_ns")) / 1e9,
        end_s=_numbers(column("end_ns")) / 1e9,
        phases_s=np.stack(phases, axis=1),
        received=_whole([models.get(name, -1) for name in column("received")]),
        attributed=_whole(column("attributed"), 0).astype(bool),
        executor=np.array([name or "" for name in column("executor")], dtype="U16"),
        layout=_whole([layouts.get(block, -1) for block in column("block")]),
        clock_skew_s=_numbers([_skew(text) for text in column("metrics")]),
        **{name: _numbers(column(name)) for name in _PLAIN},
    )


def _skew(metrics: str | None) -> float | None:
    """What the server reckoned from a ticket, kept among what a client told."""
    if metrics is None or '"clock_skew_s"' not in metrics:
        return None
    found = json.loads(metrics).get("clock_skew_s")
    return float(found) if isinstance(found, int | float) else None


def _places(blocks: Sequence[UpdateBlock], columns: Sequence[Sequence[Any]]) -> Ints:
    """For each participation its row in the blocks laid end to end, -1 for none."""
    starts, total = {}, 0
    for block in blocks:
        starts[block.id] = (total, len(block.stats))
        total += len(block.stats)
    places = []
    for number, row in zip(columns[_PLACE["block"]], columns[_PLACE["block_row"]], strict=True):
        start, count = starts.get(number, (0, 0))
        places.append(start + row if row is not None and 0 <= row < count else -1)
    return np.array(places, dtype=np.int64)


def _aligned(blocks: Sequence[UpdateBlock], layout: Layout, places: Ints) -> Updates:
    present = places >= 0
    taken = np.where(present, places, 0)

    def lined_up(name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        whole = np.concatenate([_or_missing(getattr(block, name), len(block.stats), shape) for block in blocks])
        rows: NDArray[np.float32] = whole[taken]
        rows[~present] = np.nan
        return rows

    kept = max((block.losses.shape[1] for block in blocks if block.losses is not None), default=0)
    losses = np.concatenate([_losses(block, kept) for block in blocks])[taken]
    steps = np.concatenate([_loss_steps(block, kept) for block in blocks])[taken]
    losses[~present], steps[~present] = np.nan, -1
    bad = np.concatenate([_nonfinite(block) for block in blocks])[taken]
    bad[~present] = 0
    layers, units, buckets = len(layout.layers), layout.units, sum(layout.sketch_buckets)
    with_units = any(block.unit_norms is not None for block in blocks)
    with_sketches = any(block.sketches is not None for block in blocks)
    return Updates(
        layout=layout,
        present=present,
        stats=lined_up("stats", (layers, 6)),
        nonfinite=bad,
        sketches=lined_up("sketches", (buckets,)) if with_sketches else None,
        unit_norms=lined_up("unit_norms", (units,)) if with_units else None,
        unit_sums=lined_up("unit_sums", (units,)) if with_units else None,
        unit_sketches=lined_up("unit_sketches", (units, 8)) * _UNIT_SCALE if with_units else None,
        losses=losses,
        loss_steps=steps,
    )


def _or_missing(array: NDArray[Any] | None, rows: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
    return np.full((rows, *shape), np.nan, np.float32) if array is None else array.astype(np.float32)


def _losses(block: UpdateBlock, kept: int) -> NDArray[np.float32]:
    wide = np.full((len(block.stats), kept), np.nan, np.float32)
    if block.losses is not None:
        wide[:, : block.losses.shape[1]] = block.losses
    return wide


def _loss_steps(block: UpdateBlock, kept: int) -> Ints:
    wide = np.full((len(block.stats), kept), -1, np.int64)
    if block.loss_steps is not None:
        wide[:, : block.loss_steps.shape[1]] = block.loss_steps
    return wide


def _nonfinite(block: UpdateBlock) -> Ints:
    if block.nonfinite is None:
        return np.zeros(block.stats.shape[:2], np.int64)
    return block.nonfinite.astype(np.int64)


def _gradients(found: Iterator[StepBlock], columns: Sequence[Sequence[Any]], layout: Layout) -> Gradients | None:
    blocks = [block for block in found if block.layout == layout.id]
    if not blocks:
        return None
    keys = zip(columns[_PLACE["client"]], columns[_PLACE["attempt"]], strict=True)
    row_of = {key: row for row, key in enumerate(keys)}
    rows = [row_of.get(key, -1) for block in blocks for key in zip(block.clients, block.attempts, strict=True)]
    return Gradients(
        layout=layout,
        row=np.array(rows, dtype=np.int64),
        step=np.array([step for block in blocks for step in block.steps], dtype=np.int64),
        norms=np.concatenate([block.stats[:, :, 0] for block in blocks]),
    )
