"""The recording process's memory over the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedvitals.profile.memory import MemoryProfile
from fedvitals.show.figures.look import BAD, LINES, byte_unit, figure, nothing, plain, time_unit
from fedvitals.show.words import size

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MOST_PHASES = 12
NEAR = 0.5  # of the limit: nearer than that, the limit is drawn


def memory(found: MemoryProfile) -> Figure:
    """Its memory at each sample and the highest so far; below, by how much each phase rose above its start."""
    title = "Memory of the process that recorded"
    rose = any(one.rise_bytes > 0 for one in found.phases)
    if not found.points and not rose:
        return nothing(title, "no memory was sampled: the run was too short, or sampling is off")
    peak = found.peak_bytes or 0
    factor, unit = byte_unit(peak)
    until = max((one.at_ns for one in found.points), default=0) / 1e9
    times, scale = time_unit(until)
    both = bool(found.points) and rose
    drawn = figure(
        f"{title}: {size(peak)} at most",
        x=f"time ({scale})",
        y=unit,
        height=520 if both else 340,
    )
    if found.points:
        _over_time(drawn, found, factor, unit, times)
    if rose:
        _phases(drawn, found, below=both)
    return drawn


def _over_time(drawn: Figure, found: MemoryProfile, factor: float, unit: str, times: float) -> None:
    at = [one.at_ns / 1e9 * times for one in found.points]
    mode = "lines+markers" if len(at) < 3 else "lines"
    for name, values, line in (
        ("in use", [one.rss_bytes for one in found.points], {"color": LINES[0]}),
        ("highest so far", [one.peak_bytes for one in found.points], {"color": LINES[1], "dash": "dot"}),
    ):
        hover = f"%{{x:.4~g}}: %{{y:.4~g}} {unit}"
        drawn.add_scatter(
            name=name, x=at, y=[value * factor for value in values], mode=mode, line=line, hovertemplate=hover
        )
    drawn.update_yaxes(rangemode="tozero")
    limit = found.limit_bytes
    if limit is not None and (found.peak_bytes or 0) > NEAR * limit:
        drawn.add_hline(y=limit * factor, line={"color": BAD, "dash": "dash"}, annotation_text="all there is")


def _phases(drawn: Figure, found: MemoryProfile, *, below: bool) -> None:
    shown = found.phases[:MOST_PHASES]
    factor, unit = byte_unit(max(one.rise_bytes for one in shown))
    if below:
        drawn.update_layout(
            yaxis={"domain": [0.62, 1.0]},
            xaxis={"anchor": "y"},
            xaxis2={"anchor": "y2", "automargin": True, "title": {"text": "phase"}},
            yaxis2={"domain": [0.0, 0.36], "anchor": "x2", "automargin": True, "title": {"text": f"rise ({unit})"}},
        )
    else:
        drawn.update_xaxes(title={"text": "phase"})
        drawn.update_yaxes(title={"text": f"rise above its start ({unit})"})
    drawn.add_bar(
        name="largest rise of a phase",
        x=list(range(len(shown))),
        y=[one.rise_bytes * factor for one in shown],
        xaxis="x2" if below else "x",
        yaxis="y2" if below else "y",
        marker={"color": LINES[2]},
        customdata=[plain(one.name) for one in shown],
        hovertemplate=f"%{{customdata}}: %{{y:.3~g}} {unit}<extra></extra>",
    )
    ticks = {
        "tickmode": "array",
        "tickvals": list(range(len(shown))),
        "ticktext": [plain(one.name, 16) for one in shown],
    }
    drawn.update_layout({"xaxis2" if below else "xaxis": ticks})
