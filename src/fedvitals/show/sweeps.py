"""A sweep to a table, a document and a picture: pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from typing import TYPE_CHECKING, Any

from fedvitals.profile.pareto import Trial, front
from fedvitals.show.tables import Table
from fedvitals.show.words import NOTHING, fixed, safe, seconds, size

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def sweep_document(trials: Sequence[Trial]) -> dict[str, Any]:
    """What `sweep --json` prints."""
    return {
        "trials": [
            {**asdict(one), "values": dict(one.values), "front": best}
            for one, best in zip(trials, front(trials), strict=True)
        ]
    }


def sweep_table(trials: Sequence[Trial]) -> Table:
    """A row a trial; a star on those that no other beats."""
    keys = [key for key, _ in trials[0].values] if trials else []
    rows = tuple(
        (
            *(safe(value, 40) for _, value in one.values),
            seconds(one.wall_s),
            seconds(one.round_s),
            size(one.memory_bytes),
            size(one.wire_bytes),
            fixed(one.accuracy),
            ("*" if best else "") if one.problem is None else safe(one.problem, 120),
        )
        for one, best in zip(trials, front(trials), strict=True)
    )
    columns = (*keys, "time", "a round", "memory", "bytes", "accuracy", "front")
    return Table("trials", columns, rows, frozenset({*keys, "front"}))


def sweep_figure(title: str, trials: Sequence[Trial]) -> Figure:
    """Time against accuracy, a point a trial: larger ones sent more, those on the front are filled."""
    import plotly.graph_objects as go

    known = [(one, best) for one, best in zip(trials, front(trials), strict=True) if one.problem is None]
    most = max([one.wire_bytes or 0.0 for one, _ in known], default=0.0) or 1.0
    figure = go.Figure(
        go.Scatter(
            x=[one.wall_s for one, _ in known],
            y=[one.accuracy for one, _ in known],
            mode="markers+text",
            text=[escape(_label(one)) for one, _ in known],
            textposition="top center",
            hovertext=[escape(_details(one)) for one, _ in known],
            marker={
                "size": [10 + 25 * (one.wire_bytes or 0.0) / most for one, _ in known],
                "color": ["#0072B2" if best else "rgba(0,0,0,0)" for _, best in known],
                "line": {"color": "#0072B2", "width": 2},
            },
        )
    )
    figure.update_layout(
        title=escape(f"{title}: filled is the Pareto front of time, memory, bytes and accuracy; size is bytes"),
        xaxis_title="wall time (s)",
        yaxis_title="accuracy",
        template="plotly_white",
    )
    return figure


def _label(one: Trial) -> str:
    return ", ".join(value for _, value in one.values)


def _details(one: Trial) -> str:
    parts = [f"{key}={value}" for key, value in one.values]
    accuracy = NOTHING if one.accuracy is None else f"{one.accuracy:.4f}"
    parts += [seconds(one.wall_s), size(one.memory_bytes), size(one.wire_bytes), f"accuracy {accuracy}"]
    return " | ".join(parts)
