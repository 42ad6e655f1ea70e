"""Clients by rounds: one measure of each participation, so that who stands out, and from when on, is seen at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedvitals.errors import FedvitalsError, nearest
from fedvitals.profile.clients import busy_s
from fedvitals.profile.profile import Profile
from fedvitals.show.figures.look import SCALE, distinct, figure, log_marks, nothing, plain, row_axis, rows_height
from fedvitals.show.figures.rounds_axis import Columns, columns_of
from fedvitals.show.words import natural
from fedvitals.store.table import Floats, Ints, ParticipationTable
from fedvitals.vocabulary import CLIENT_PHASES

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MOST_CLIENTS = 60
LARGEST = float(np.finfo(np.float32).max)  # that is drawn: what is beyond is as bad
EVEN = 4.0  # a measure whose highest is so many times its middle is coloured by its logarithm


class Measure(NamedTuple):
    """Something known of a participation."""

    label: str
    unit: str
    of: Callable[[ParticipationTable], Floats]
    zero: bool = False  # coloured to both sides of 0


MEASURES = {
    "seconds": Measure("time that each client took", "s", busy_s),
    **{
        phase: Measure(f"time each client took to {phase}", "s", lambda table, at=at: table.phases_s[:, at])  # type: ignore[misc]  # mypy gives lambdas no defaults
        for at, phase in enumerate(CLIENT_PHASES)
    },
    "first_loss": Measure("loss of each client at its first steps", "", lambda table: table.first_loss),
    "loss": Measure("loss of each client", "", lambda table: table.loss),
    "update_norm": Measure("size of each client's update", "", lambda table: table.update_norm),
    "cosine": Measure("cosine of each client's update to the others", "", lambda table: table.cosine, zero=True),
    "bytes_up": Measure("bytes that each client sent", "B", lambda table: table.wire_bytes_up),
    "staleness": Measure("how stale each client's model was", "versions", lambda table: table.staleness),
    "memory": Measure("peak memory of each client", "B", lambda table: table.peak_memory_bytes),
}


def heat_map(profile: Profile, measure: str = "seconds") -> Figure:
    """`measure` is one of MEASURES. Of many clients those are shown whose measure is furthest from the others'."""
    if measure not in MEASURES:
        raise FedvitalsError(f"there is no measure {measure!r}{nearest(measure, list(MEASURES))}")
    one = MEASURES[measure]
    title = f"{one.label[0].upper()}{one.label[1:]}"
    columns = columns_of(profile.timeline.rounds)
    grid = _grid(profile, one.of(profile.timeline.participations), columns)
    if not np.isfinite(grid).any():
        return nothing(title, "nothing is known of it in this run")
    chosen = _chosen(grid, profile.timeline.clients)
    notes = [f"the {len(chosen)} of {len(grid)} clients furthest from the others"] if len(chosen) < len(grid) else []
    notes += [f"{columns.note}: their mean"] if columns.note else []
    labels = distinct([plain(profile.timeline.clients[place]) for place in chosen])
    height = rows_height(len(labels), 120) if len(labels) < MOST_CLIENTS else 860
    found = figure(title, x="round", y="client", note="; ".join(notes), height=height, legend=False)
    found.update_yaxes(row_axis(labels))
    found.update_xaxes(showgrid=False, zeroline=False)
    _draw(found, one, grid[chosen], columns, labels)
    return found


def _draw(found: Figure, one: Measure, grid: Floats, columns: Columns, labels: list[str]) -> None:
    unit = f" {one.unit}" if one.unit else ""
    known = grid[np.isfinite(grid)]
    uneven = not one.zero and known.min() > 0 and known.max() > EVEN * float(np.median(known))
    shade = np.log10(grid) if uneven else grid
    bar = {"title": {"text": one.unit}, "thickness": 14}
    if uneven:
        bar |= log_marks(float(known.min()), float(known.max()))
    middle = {"zmid": 0.0, "colorscale": "RdBu"} if one.zero else {"colorscale": SCALE}
    found.add_heatmap(
        z=shade.astype(np.float32),
        customdata=grid.astype(np.float32),
        x=columns.x,
        y=labels,
        colorbar=bar,
        hovertemplate=f"round %{{x}}, client %{{y}}: %{{customdata:.4~g}}{unit}<extra></extra>",
        hoverongaps=False,
        **middle,
    )


def _grid(profile: Profile, values: Floats, columns: Columns) -> Floats:
    """[clients, columns]: the mean of what is known; NaN where a client was not there."""
    table, rounds = profile.timeline.participations, profile.timeline.rounds
    column = _columns(table.round, np.array([one.number for one in rounds], dtype=np.int64), columns)
    known = np.isfinite(values) & (column >= 0)
    shape = (len(profile.timeline.clients), len(columns.labels))
    cell = table.client[known] * shape[1] + column[known]
    size = shape[0] * shape[1]
    counts = np.bincount(cell, minlength=size)
    sums = np.bincount(cell, weights=np.clip(values[known], -LARGEST, LARGEST), minlength=size)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan).reshape(shape)


def _columns(round_of: Ints, numbers: Ints, columns: Columns) -> Ints:
    """The column of each participation; -1 where its round is not known."""
    if not len(numbers):
        return np.full(len(round_of), -1, dtype=np.int64)
    order = np.argsort(numbers, kind="stable")
    place = np.clip(np.searchsorted(numbers[order], round_of), 0, len(numbers) - 1)
    found = np.where(numbers[order][place] == round_of, columns.place[order][place], -1)
    return np.asarray(found, dtype=np.int64)


def _chosen(grid: Floats, clients: tuple[str, ...]) -> list[int]:
    """The rows to show, by name: all, or those whose middle lies furthest from the middle of all."""
    there = np.isfinite(grid).any(axis=1)
    middles = np.full(len(grid), np.nan)
    middles[there] = np.nanmedian(grid[there], axis=1)
    distance = np.nan_to_num(np.abs(middles - np.nanmedian(middles)), nan=-1.0)
    furthest = np.argsort(-distance, kind="stable")[:MOST_CLIENTS].tolist()
    return sorted(furthest, key=lambda place: natural(clients[place]))
