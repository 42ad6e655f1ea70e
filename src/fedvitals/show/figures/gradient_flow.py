"""How strongly gradients reach each layer, round after round."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedvitals.profile.gradients import Flow, flow_of
from fedvitals.show.figures.look import BAD, SCALE, distinct, figure, log_marks, nothing, plain, row_axis, rows_height
from fedvitals.show.figures.rounds_axis import Columns, columns_of
from fedvitals.store.protocol import RunReader
from fedvitals.vocabulary import Layout

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MOST_LAYERS = 48


def gradient_flow(reader: RunReader) -> Figure:
    """Root mean square of each layer's gradient over the sampled steps. Where no step was looked at, of the updates."""
    layouts, rounds = reader.layouts(), tuple(reader.rounds())
    if not layouts:
        return nothing("Gradients across layers", "no model was seen in this run")
    columns = columns_of(rounds)
    place = {one.number: column for one, column in zip(rounds, columns.place.tolist(), strict=True)}
    for what, steps in (("gradients", True), ("updates", False)):
        found = flow_of(reader, layouts[0], place, len(columns.labels), steps=steps)
        if found is not None:
            return _drawn(columns, layouts[0], what, found)
    return nothing("Gradients across layers", "neither gradients nor updates were looked at in this run")


def _drawn(columns: Columns, layout: Layout, what: str, flow: Flow) -> Figure:
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
