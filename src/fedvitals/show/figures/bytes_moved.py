"""What went over the wire, round after round."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedvitals.profile.profile import Profile
from fedvitals.show.figures.look import DOWN, UP, byte_unit, figure, nothing
from fedvitals.show.figures.rounds_axis import columns_of, means
from fedvitals.show.words import size
from fedvitals.store.table import Floats

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def bytes_moved(profile: Profile) -> Figure:
    """Bars of what was sent up and down; lines of what it would have been uncompressed, where that is known."""
    title = "Bytes a round, over the wire"
    table, rounds = profile.timeline.participations, profile.timeline.rounds
    wire = {"up": _by_round(profile, table.wire_bytes_up), "down": _by_round(profile, table.wire_bytes_down)}
    if not rounds or not any(np.isfinite(values).any() for values in wire.values()):
        return nothing(title, "nobody counted the bytes of this run")
    raw = {"up": _by_round(profile, table.raw_bytes_up), "down": _by_round(profile, table.raw_bytes_down)}
    columns = columns_of(rounds)
    most = max(float(np.nanmax(values)) for values in (*wire.values(), *raw.values()) if np.isfinite(values).any())
    factor, unit = byte_unit(most)
    way = profile.communication
    found = figure(
        f"{title}: {size(way.up.wire_bytes)} up and {size(way.down.wire_bytes)} down in all",
        x="round",
        y=f"bytes a round ({unit})",
        note=f"{columns.note}: their mean" if columns.note else "",
        barmode="group",
    )
    for name, colour in (("up", UP), ("down", DOWN)):
        shown = means(wire[name], columns) * factor
        hover = f"round %{{x}}: %{{y:.4~g}} {unit} {name}<extra></extra>"
        found.add_bar(name=name, x=columns.x, y=shown, marker={"color": colour}, hovertemplate=hover)
        plain = means(raw[name], columns) * factor
        if np.isfinite(plain).any() and not np.allclose(plain, shown, rtol=0.02, equal_nan=True):
            found.add_scatter(
                name=f"{name}, uncompressed",
                x=columns.x,
                y=plain,
                mode="lines+markers" if len(plain) == 1 else "lines",
                line={"color": colour, "dash": "dot"},
                hovertemplate=f"round %{{x}}: %{{y:.4~g}} {unit} {name}, uncompressed<extra></extra>",
            )
    return found


def _by_round(profile: Profile, column: Floats) -> Floats:
    """Sums a round, in the order in which they began; NaN where nobody counted."""
    table = profile.timeline.participations
    found = []
    for one in profile.timeline.rounds:
        some = column[slice(*np.searchsorted(table.round, [one.number, one.number + 1]).tolist())]
        known = some[np.isfinite(some)]
        found.append(float(known.sum()) if len(known) else np.nan)
    return np.array(found, dtype=np.float64)
