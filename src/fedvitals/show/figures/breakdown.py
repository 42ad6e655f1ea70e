"""Where each round's time went, round after round."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedvitals.profile.phases import ALL
from fedvitals.profile.profile import Profile
from fedvitals.show.figures.look import figure, nothing, phase_bars, time_unit
from fedvitals.show.figures.rounds_axis import columns_of, means

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def breakdown(profile: Profile) -> Figure:
    """A bar a round, divided by what the round was waiting for."""
    title = "Where each round's time went"
    rounds = profile.timeline.rounds
    if not rounds or not any(one.wall_s > 0 for one in profile.rounds):
        return nothing(title, "no round with a length was recorded")
    columns = columns_of(rounds)
    spent = np.array([[one.breakdown_s.get(phase, 0.0) for phase in ALL] for one in profile.rounds])
    shown = means(spent, columns)
    factor, unit = time_unit(float(shown.sum(axis=1).max()))
    note = f"{columns.note}: their mean" if columns.note else ""
    found = figure(title, x="round", y=f"time a round ({unit})", note=note, barmode="stack", bargap=_gap(len(shown)))
    for place, phase in enumerate(ALL):
        if spent[:, place].any():
            phase_bars(
                found, phase, x=columns.x, y=shown[:, place] * factor, hovertemplate=f"round %{{x}}: %{{y:.3~g}} {unit}"
            )
    return found


def _gap(columns: int) -> float:
    """Many bars stand without gaps: they would be all one saw."""
    return 0.2 if columns <= 60 else 0.0
