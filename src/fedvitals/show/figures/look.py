"""How every figure looks: colours of phases, titles, axes, and text that strangers wrote made harmless."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from fedvitals.profile.path import UNEXPLAINED
from fedvitals.show.words import safe

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

# Told apart with any kind of colour sight, on white and on black (after Okabe and Ito, and Tol); the two kinds of doing
# nothing are grey, with a pattern of their own.
COLOURS = {
    "select": "#999933",
    "download": "#56b4e9",
    "decode": "#44aa99",
    "load": "#e69f00",
    "train": "#0072b2",
    "encode": "#aa4466",
    "upload": "#d55e00",
    "wait": "#bbbbbb",
    "aggregate": "#cc79a7",
    "evaluate": "#009e73",
    "other": "#ddcc77",
    UNEXPLAINED: "#888888",
}
PATTERNS = {"wait": ".", UNEXPLAINED: "/"}
LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
UP, DOWN = COLOURS["upload"], COLOURS["download"]
BAD, EDGE = "#d6324a", "#888888"
SCALE = "Cividis"  # as light to those who see no red or green as to others
ROW_PX, LEAST_PX, MOST_PX = 22, 260, 900
MOST_LABEL = 28
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif"


def template(*, dark: bool = False) -> dict[str, Any]:
    """What the figures inherit; the report has both and changes between them."""
    ink, faint = ("#e6e6e6", "#3a3f47") if dark else ("#222222", "#e2e2e2")
    axis = {"gridcolor": faint, "zerolinecolor": faint, "linecolor": ink, "automargin": True, "title": {"standoff": 8}}
    return {
        "layout": {
            "font": {"family": FONT, "size": 13, "color": ink},
            "title": {"x": 0, "xanchor": "left", "xref": "container", "pad": {"l": 4}, "font": {"size": 16}},
            "paper_bgcolor": "#14171c" if dark else "#ffffff",
            "plot_bgcolor": "#14171c" if dark else "#ffffff",
            "colorway": list(LINES),
            "xaxis": axis,
            "yaxis": axis,
            "hoverlabel": {"align": "left"},
            "legend": {
                "orientation": "h",
                "x": 0,
                "y": 0,
                "yref": "container",
                "yanchor": "bottom",
                "traceorder": "normal",
            },
        }
    }


def plain(text: object, most: int = MOST_LABEL) -> str:
    """A stranger's word for a figure: plotly reads some HTML in any text."""
    return escape(safe(text, most), quote=False)


def client_label(name: str) -> str:
    """A client as a row is called: a bare number would not say what it is."""
    return f"client {plain(name)}" if name.isdigit() else plain(name)


def figure(
    title: str, *, x: str, y: str, note: str = "", height: int = 380, legend: bool = True, **layout: Any
) -> Figure:
    """An empty one. `title` and `note` are ours, or went through `plain`."""
    from plotly.graph_objects import Figure

    below = f"<br><sup>{note}</sup>" if note else ""
    return Figure(
        layout={
            "template": template(),
            "title": {"text": f"{title}{below}"},
            "height": height,
            "margin": {"l": 60, "r": 20, "t": 76 if note else 56, "b": 84 if legend else 50},
            "xaxis": {"title": {"text": x}},
            "yaxis": {"title": {"text": y}},
            **layout,
        }
    )


def nothing(title: str, why: str) -> Figure:
    """A figure of what is not there says why, instead of showing empty axes."""
    found = figure(title, x="", y="", height=160, xaxis={"visible": False}, yaxis={"visible": False})
    found.add_annotation(text=why, showarrow=False, x=0, xref="paper", y=0.5, yref="paper", xanchor="left")
    return found


def phase_bars(found: Figure, phase: str, **bar: Any) -> None:
    """Bars of one phase, in its colour, under its name in the legend."""
    marker = {"color": COLOURS[phase], "line": {"width": 0}}
    if phase in PATTERNS:
        marker["pattern"] = {"shape": PATTERNS[phase], "size": 5, "solidity": 0.25}
    found.add_bar(name=phase, marker=marker, legendgroup=phase, showlegend=True, **bar)


def row_axis(labels: Sequence[str]) -> dict[str, Any]:
    """An axis with a row a label, the first on top. The labels are `distinct` ones."""
    return {
        "type": "category",  # a client called 7 is no number
        "categoryorder": "array",
        "categoryarray": list(labels),
        "range": [len(labels) - 0.5, -0.5],
        "dtick": 1 if len(labels) <= MOST_PX // 14 else None,
        "showgrid": False,
        "zeroline": False,
    }


def distinct(labels: Sequence[str]) -> list[str]:
    """Two names that look alike once they are cut are still two rows."""
    seen: dict[str, int] = {}
    found = []
    for label in labels:
        seen[label] = seen.get(label, 0) + 1
        found.append(label if seen[label] == 1 else f"{label} ({seen[label]})")
    return found if len(set(found)) == len(found) else [f"{place}: {label}" for place, label in enumerate(labels)]


def rows_height(rows: int, extra: int = 150) -> int:
    """So that each row can be read, within reason."""
    return min(max(rows * ROW_PX + extra, LEAST_PX), MOST_PX)


def time_unit(longest_s: float) -> tuple[float, str]:
    """What to multiply seconds by, and the unit."""
    for limit, factor, unit in ((1e-3, 1e6, "us"), (1.0, 1e3, "ms"), (600.0, 1.0, "s"), (36_000.0, 1 / 60, "min")):
        if longest_s < limit:
            return factor, unit
    return 1 / 3600, "h"


def log_marks(low: float, high: float) -> dict[str, Any]:
    """Marks of a colour bar whose numbers are logarithms: 1, 2, 5, 10, of many only the powers of ten."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    marks = [base * 10.0**power for power in powers for base in (1, 2, 5)]
    inside = [mark for mark in marks if low <= mark <= high]
    tens = [mark for mark in inside if f"{mark:e}".startswith("1")]
    shown = inside if 2 <= len(inside) <= 7 else tens[:: -(-len(tens) // 7)] if len(tens) >= 2 else [low, high]
    return {"tickvals": [math.log10(mark) for mark in shown], "ticktext": [f"{mark:.2g}" for mark in shown]}


def byte_unit(most: float) -> tuple[float, str]:
    for limit, factor, unit in ((1e3, 1.0, "B"), (1e6, 1e-3, "kB"), (1e9, 1e-6, "MB"), (1e12, 1e-9, "GB")):
        if most < limit:
            return factor, unit
    return 1e-12, "TB"
