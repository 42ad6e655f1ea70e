"""One round: who worked when, and at what."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedvitals.profile.phases import ALL, phases_of
from fedvitals.profile.profile import Profile
from fedvitals.profile.timeline import NOBODY, Stretch, Timeline, overlapping
from fedvitals.show.figures.look import (
    BAD,
    EDGE,
    client_label,
    distinct,
    figure,
    nothing,
    phase_bars,
    plain,
    row_axis,
    rows_height,
    time_unit,
)
from fedvitals.show.words import plural, seconds
from fedvitals.vocabulary import Outcome, Round

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MOST_ROWS = 40


class Row(NamedTuple):
    """One line of the picture."""

    label: str
    stretches: tuple[Stretch, ...]
    remark: str = ""  # what became of it, where that is not "used"


def waterfall(profile: Profile, round: int) -> Figure:
    """The server on top, then the clients as they began. Of many those that ended last, which the round waited for."""
    one = next((each for each in profile.timeline.rounds if each.number == round), None)
    if one is None:
        return nothing(f"Round {round}", "there is no such round in this run")
    rows, of = _rows(profile.timeline, one)
    end_ns = one.end_ns or one.start_ns
    if not any(row.stretches for row in rows):
        return nothing(f"Round {round}", "nothing that took time is known of this round")
    note = f"the {len(rows) - 1} of {of} that ended last" if len(rows) - 1 < of else ""
    until = max(stretch.end_ns for row in rows for stretch in row.stretches)
    factor, unit = time_unit((until - one.start_ns) / 1e9)
    title = f"Round {round}: {seconds((end_ns - one.start_ns) / 1e9)}, who worked when"
    found = drawn_rows(title, rows, one.start_ns, factor, unit, note)
    found.add_vline(x=(end_ns - one.start_ns) / 1e9 * factor, line={"width": 1, "dash": "dot", "color": EDGE})
    return found


def drawn_rows(title: str, rows: list[Row], origin_ns: int, factor: float, unit: str, note: str) -> Figure:
    """Rows of a round, over its time."""
    found = figure(
        title,
        x=f"time since the round began ({unit})",
        y="",
        note=note,
        height=rows_height(len(rows)),
        barmode="overlay",
        bargap=0.25,
    )
    _draw_rows(found, rows, origin_ns, factor, unit)
    return found


def _draw_rows(found: Figure, rows: list[Row], origin_ns: int, factor: float, unit: str) -> None:
    """A bar a stretch, in the colour of its phase; and a remark at the end of its row."""
    labels = distinct([row.label for row in rows])
    found.update_yaxes(row_axis(labels))
    until = max(stretch.end_ns for row in rows for stretch in row.stretches) - origin_ns
    room = 1.12 if any(row.remark for row in rows) else 1.02
    found.update_xaxes(range=[0, until / 1e9 * factor * room])
    by_phase: dict[str, list[tuple[int, Stretch]]] = defaultdict(list)
    for place, row in enumerate(rows):
        for stretch in row.stretches:
            by_phase[stretch.phase].append((place, stretch))
    for phase in ALL:
        some = by_phase.get(phase, [])
        if some:
            phase_bars(
                found,
                phase,
                orientation="h",
                y=[labels[place] for place, _ in some],
                base=[(stretch.start_ns - origin_ns) / 1e9 * factor for _, stretch in some],
                x=[(stretch.end_ns - stretch.start_ns) / 1e9 * factor for _, stretch in some],
                hovertemplate=f"%{{y}}: {phase} %{{x:.3~g}} {unit}, from %{{base:.4~g}}<extra></extra>",
            )
    told = [(place, row) for place, row in enumerate(rows) if row.remark and row.stretches]
    if told:
        found.add_scatter(
            mode="markers+text",
            x=[(row.stretches[-1].end_ns - origin_ns) / 1e9 * factor for _, row in told],
            y=[labels[place] for place, _ in told],
            text=[f" {row.remark}" for _, row in told],
            textposition="middle right",
            textfont={"color": BAD},
            marker={"symbol": "x", "color": BAD, "size": 9},
            cliponaxis=False,
            showlegend=False,
            hoverinfo="skip",
        )


def _rows(timeline: Timeline, one: Round) -> tuple[list[Row], int]:
    """The server's row and the clients', and how many clients or batches there are."""
    end_ns = one.end_ns or one.start_ns
    server = [*overlapping(timeline.server, one.start_ns, end_ns), *overlapping(timeline.soft, one.start_ns, end_ns)]
    works = timeline.works
    every = np.flatnonzero(works.round == one.number)
    last = every[np.argsort(works.end_ns[every], kind="stable")][-MOST_ROWS:]
    ordered = sorted(last.tolist(), key=lambda row: (works.start_ns[row], works.end_ns[row]))
    remarks, sizes = _remarks(timeline, one.number), _sizes(timeline, one.number)
    rows = [_row(timeline, row, remarks, sizes.get(int(works.start_ns[row]), 0)) for row in ordered]
    return [Row("server", tuple(sorted(server))), *rows], len(every)


def _row(timeline: Timeline, row: int, remarks: dict[tuple[int, int], str], batched: int) -> Row:
    client = int(timeline.works.client[row])
    stretches = tuple(phases_of(timeline, row))
    if client == NOBODY:
        return Row(f"a batch of {plural(batched, 'client')}", stretches)
    return Row(
        client_label(timeline.clients[client]), stretches, remarks.get((client, int(timeline.works.attempt[row])), "")
    )


def _remarks(timeline: Timeline, number: int) -> dict[tuple[int, int], str]:
    table = timeline.participations
    rows = np.flatnonzero((table.round == number) & (table.outcome != Outcome.USED)).tolist()
    return {(int(table.client[row]), int(table.attempt[row])): plain(table.outcome[row]) for row in rows}


def _sizes(timeline: Timeline, number: int) -> dict[int, int]:
    """How many clients each batch of a round had, by the instant at which it began."""
    table = timeline.participations
    rows = (table.round == number) & table.attributed
    starts, counts = np.unique(np.clip(table.start_ns[rows], 0, timeline.end_ns), return_counts=True)
    return dict(zip(starts.tolist(), counts.tolist(), strict=True))
