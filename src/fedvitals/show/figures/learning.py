"""How the model got better, round after round."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from fedvitals.profile.learning import first_losses
from fedvitals.profile.profile import Profile
from fedvitals.show.figures.look import LINES, figure, nothing, plain
from fedvitals.show.words import fixed
from fedvitals.store.table import Floats
from fedvitals.vocabulary import Evaluation

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MOST_SPLITS = 4
MOST_POINTS = 1_000


def learning(profile: Profile) -> Figure:
    """Loss below, accuracy above; of the clients the middle of their losses on the model that they received."""
    title = "How the model learned"
    splits = _splits(profile)
    rounds, quarters = _clients(profile)
    if not splits and not len(rounds):
        return nothing(title, "no evaluation and no client's loss was recorded")
    judged = any(one.accuracy is not None for some in splits.values() for one in some)
    best = f": accuracy {fixed(profile.best_accuracy)} at best" if profile.best_accuracy is not None else ""
    found = figure(f"{title}{best}", x="round", y="loss", height=460 if judged else 360)
    if judged:
        found.update_layout(
            yaxis={"domain": [0.0, 0.47]},
            yaxis2={"domain": [0.55, 1.0], "title": {"text": "accuracy"}, "anchor": "x", "automargin": True},
        )
    for (split, some), colour in zip(splits.items(), LINES, strict=False):
        _lines(found, split, some, colour)
    if len(rounds):
        _quarters(found, rounds, quarters)
    return found


def _splits(profile: Profile) -> dict[str, list[Evaluation]]:
    """The global model's, by the rows that it was judged on; the first few."""
    found: dict[str, list[Evaluation]] = defaultdict(list)
    for one in sorted(profile.evaluations, key=lambda one: (one.round, one.at_ns)):
        if one.loss is not None or one.accuracy is not None:
            found[one.split].append(one)
    return {split: _thinned(some) for split, some in list(found.items())[:MOST_SPLITS]}


def _thinned(some: list[Evaluation]) -> list[Evaluation]:
    step = -(-len(some) // MOST_POINTS)
    return [*some[:-1:step], some[-1]] if step > 1 else some


def _lines(found: Figure, split: str, some: list[Evaluation], colour: str) -> None:
    for axis, values in (("y", [one.loss for one in some]), ("y2", [one.accuracy for one in some])):
        if any(value is not None for value in values):
            name = f"{plain(split)} {'loss' if axis == 'y' else 'accuracy'}"
            found.add_scatter(
                name=name,
                x=[one.round for one in some],
                y=[value if value is not None and np.isfinite(value) else None for value in values],
                yaxis=axis,
                mode="lines+markers" if len(some) <= 40 else "lines",
                line={"color": colour, "dash": "solid" if axis == "y2" else "dash"},
                hovertemplate="round %{x}: %{y:.4f}",
            )


def _clients(profile: Profile) -> tuple[list[int], Floats]:
    """For each round the quartiles of the clients' first losses; of very many rounds an even choice."""
    rounds, quarters = first_losses(profile.timeline)
    step = max(-(-len(rounds) // MOST_POINTS), 1)
    return rounds[::step], quarters[::step]


def _quarters(found: Figure, rounds: list[int], quarters: Floats) -> None:
    low, middle, high = quarters.T
    band = {"x": rounds, "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "legendgroup": "clients"}
    found.add_scatter(y=low, showlegend=False, **band)
    found.add_scatter(
        y=high, fill="tonexty", fillcolor="rgba(230,159,0,0.25)", name="clients' first loss: middle half", **band
    )
    found.add_scatter(
        name="its median",
        x=rounds,
        y=middle,
        mode="lines+markers" if len(rounds) == 1 else "lines",
        line={"color": "#e69f00"},
        hovertemplate="round %{x}: %{y:.4f}",
    )
