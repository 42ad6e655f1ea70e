"""How strongly gradients reach each layer, round after round."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedvitals.show.figures.look import BAD, SCALE, distinct, figure, log_marks, nothing, plain, row_axis, rows_height
from fedvitals.show.figures.rounds_axis import columns_of
from fedvitals.store.protocol import RunReader
from fedvitals.store.table import Floats, Ints
from fedvitals.vocabulary import STATISTICS, Layout

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MOST_LAYERS = 48
_NORM = STATISTICS.index("norm")


class Flow(NamedTuple):
    """[layers, columns]: the mean logarithm of a layer's root mean square; and how many were not finite."""

    level: Floats
    broken: Ints
    steps: int


def gradient_flow(reader: RunReader) -> Figure:
    """Root mean square of each layer's gradient over the sampled steps. Where no step was looked at, of the updates."""
    layouts = {layout.id: layout for layout in reader.layouts()}
    if not layouts:
        return nothing("Gradients across layers", "no model was seen in this run")
    what, found = "gradients", _flow(reader, layouts, steps=True)
    if found is None:
        what, found = "updates", _flow(reader, layouts, steps=False)
    if found is None:
        return nothing("Gradients across layers", "neither gradients nor updates were looked at in this run")
    return _drawn(reader, next(iter(layouts.values())), what, found)


def _flow(reader: RunReader, layouts: dict[int, Layout], *, steps: bool) -> Flow | None:
    """Block by block, so that a long run is never in memory. Only the first layout: others have other layers."""
    layout = next(iter(layouts.values()))
    rounds = tuple(reader.rounds())
    columns = columns_of(rounds)
    place = {one.number: int(column) for one, column in zip(rounds, columns.place, strict=True)}
    root = np.sqrt(np.maximum([layer.size for layer in layout.layers], 1))
    shape = (len(columns.labels), len(layout.layers))
    sums, counts, broken = np.zeros(shape), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    seen = 0
    for number, norms in _norms(reader, layout.id, steps=steps):
        if number not in place:
            continue
        column, finite = place[number], np.isfinite(norms)
        with np.errstate(divide="ignore", invalid="ignore"):
            levels = np.log10(norms / root)
        usable = np.isfinite(levels)
        sums[column] += np.where(usable, levels, 0.0).sum(axis=0)
        counts[column] += usable.sum(axis=0)
        broken[column] += (~finite).sum(axis=0)
        seen += len(norms)
    if not seen:
        return None
    return Flow(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan).T, broken.T, seen)


def _norms(reader: RunReader, layout: int, *, steps: bool) -> Iterator[tuple[int, Floats]]:
    blocks = reader.step_blocks() if steps else reader.update_blocks()
    for block in blocks:
        if block.layout == layout:
            yield block.round, block.stats[:, :, _NORM].astype(np.float64)


def _drawn(reader: RunReader, layout: Layout, what: str, flow: Flow) -> Figure:
    columns = columns_of(tuple(reader.rounds()))
    shown = _chosen(len(layout.layers))
    labels = distinct([plain(layout.layers[place].name, 40) for place in shown])
    notes = [f"root mean square a value, over {flow.steps:,} {'sampled steps' if what == 'gradients' else 'updates'}"]
    notes += [f"{len(shown)} of {len(layout.layers)} layers"] if len(shown) < len(layout.layers) else []
    notes += [columns.note] if columns.note else []
    height = rows_height(len(labels), 140)
    found = figure(
        f"{what.capitalize()} across layers", x="round", y="", note="; ".join(notes), height=height, legend=False
    )
    found.update_yaxes(row_axis(labels))
    found.update_xaxes(showgrid=False, zeroline=False)
    level = flow.level[shown]
    seen = 10.0 ** level[np.isfinite(level)]
    marks = log_marks(float(seen.min()), float(seen.max())) if len(seen) else {}
    found.add_heatmap(
        z=level.astype(np.float32),
        x=columns.x,
        y=labels,
        colorscale=SCALE,
        customdata=(10.0**level).astype(np.float32),
        hovertemplate="round %{x}, %{y}: %{customdata:.3~g}<extra></extra>",
        hoverongaps=False,
        colorbar={"thickness": 14, **marks},
    )
    rows, cols = np.nonzero(flow.broken[shown])
    if len(rows):
        found.add_scatter(
            name="not finite",
            mode="markers",
            x=[columns.x[column] for column in cols],
            y=[labels[row] for row in rows],
            marker={"symbol": "x", "color": BAD, "size": 7},
            hovertemplate="round %{x}: not finite<extra></extra>",
            showlegend=True,
        )
    return found


def _chosen(count: int) -> list[int]:
    """All layers, or an even choice of them with the first and the last."""
    places: list[int] = np.unique(np.linspace(0, count - 1, min(count, MOST_LAYERS)).round().astype(int)).tolist()
    return places
