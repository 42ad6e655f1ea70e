"""What the run, or one round, was waiting for."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from fedvitals.profile.phases import ALL, phases_of
from fedvitals.profile.profile import Profile
from fedvitals.profile.timeline import NOBODY, Stretch, overlapping
from fedvitals.show.figures.look import (
    client_label,
    distinct,
    figure,
    nothing,
    phase_bars,
    row_axis,
    rows_height,
    time_unit,
)
from fedvitals.show.figures.waterfall import Row, drawn_rows
from fedvitals.show.words import plural, seconds
from fedvitals.store.table import Floats

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MOST_NAMED = 24
SERVER, BATCHES = "server", "clients in batches"


def critical_path(profile: Profile, round: int | None = None) -> Figure:
    """Of one round: its chain of waiting, in time. Of the whole run: whom it waited for, how long, and for what."""
    return _of_run(profile) if round is None else _of_round(profile, round)


def _of_run(profile: Profile) -> Figure:
    title = "What the run waited for"
    if profile.wall_s <= 0:
        return nothing(title, "nothing took any time")
    ordered = _by_holder(profile)
    labels = [label for label, _ in ordered[:MOST_NAMED]]
    totals = [values for _, values in ordered[:MOST_NAMED]]
    rest = ordered[MOST_NAMED:]
    if rest:
        labels.append(f"{len(rest)} others")
        totals.append(np.sum([values for _, values in rest], axis=0))
    table = np.array(totals)
    factor, unit = time_unit(float(table.sum(axis=1).max()))
    found = figure(
        f"{title}: {seconds(profile.wall_s)} in all",
        x=f"time on the critical path ({unit})",
        y="",
        note=f"the {MOST_NAMED} longest of {len(ordered)}" if rest else "",
        height=rows_height(len(labels)),
        barmode="stack",
        bargap=0.25,
    )
    labels = distinct(labels)
    found.update_yaxes(row_axis(labels))
    for place, phase in enumerate(ALL):
        if table[:, place].any():
            phase_bars(
                found,
                phase,
                orientation="h",
                y=labels,
                x=table[:, place] * factor,
                hovertemplate=f"%{{y}}: {phase} %{{x:.3~g}} {unit}<extra></extra>",
            )
    return found


def _by_holder(profile: Profile) -> list[tuple[str, Floats]]:
    """Who was waited for, and the seconds of it in each of ALL phases; the longest first."""
    works, path = profile.timeline.works, profile.path
    whose = np.where(path.work >= 0, works.client[path.work] if len(works) else NOBODY, NOBODY - 1)
    found = [(_label(profile, who), profile.path_phases[whose == who].sum(axis=0)) for who in np.unique(whose).tolist()]
    return sorted(found, key=lambda pair: -float(pair[1].sum()))


def _of_round(profile: Profile, round: int) -> Figure:
    title = f"Round {round}: what it waited for"
    one = next((each for each in profile.timeline.rounds if each.number == round), None)
    if one is None:
        return nothing(title, "there is no such round in this run")
    end_ns = one.end_ns or one.start_ns
    rows, of = _chain(profile, one.start_ns, end_ns)
    if not rows:
        return nothing(title, "the round has no length")
    factor, unit = time_unit((end_ns - one.start_ns) / 1e9)
    note = f"the {len(rows)} longest of {plural(of, 'worker')} on it" if len(rows) < of else ""
    return drawn_rows(f"{title}, {seconds((end_ns - one.start_ns) / 1e9)}", rows, one.start_ns, factor, unit, note)


def _chain(profile: Profile, start_ns: int, end_ns: int) -> tuple[list[Row], int]:
    """Who was on the path between, as rows in the order in which they first were; and how many there were."""
    path, timeline = profile.path, profile.timeline
    first, last = np.searchsorted(path.start_ns, [start_ns, end_ns])
    rows: dict[int, list[Stretch]] = defaultdict(list)
    for piece in path.pieces[first:last]:
        if piece.work < 0:
            rows[NOBODY - 1].append(Stretch(piece.start_ns, piece.end_ns, piece.phase))
        else:
            client = int(timeline.works.client[piece.work])
            rows[client] += overlapping(phases_of(timeline, piece.work), piece.start_ns, piece.end_ns)
    longest = sorted(rows, key=lambda who: -sum(one.end_ns - one.start_ns for one in rows[who]))[:MOST_NAMED]
    kept = [who for who in rows if who in set(longest)]
    return [Row(_label(profile, who), tuple(rows[who])) for who in kept], len(rows)


def _label(profile: Profile, who: int) -> str:
    if who < NOBODY:
        return SERVER
    return BATCHES if who == NOBODY else client_label(profile.timeline.clients[who])
