"""Model shrinks.

Sees: a global model all of whose matrices have shrunk to less than a tenth of what they were at first.

Matters: what is averaged has lost its size: the model forgets what it knew, ends as nothing but zeros, and guesses.
Clients train well all the while, so their losses and updates look like those of a training.

Evidence: the norm of all matrices at first and at the end, and what a typical round left of it. A server that divides
by all clients leaves the share of those who took part.

False alarms: training makes weights grow, and the weight decay that is usual takes a hundredth of them in as many
rounds. Matrices that were zero at first are not asked. Where the loss has fallen by a fifth, nothing is told: strong
weight decay beside normalisation layers shrinks matrices, and the model learns all the same.

Do: divide what is summed by the sum of the weights of those who took part in the round. Where clients send differences,
add their average to the model instead of loading it as one.

Papers: none.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedvitals.diagnose.chart import NORM, Chart
from fedvitals.diagnose.learning.curves import beginning, learning_curve
from fedvitals.diagnose.learning.depths import matrices
from fedvitals.diagnose.rule import CannotSee, Sight, WrittenRule
from fedvitals.diagnose.writing import changing, short, write
from fedvitals.store.table import Floats
from fedvitals.vocabulary import Finding, Layout, ModelBlock, Severity

SHRUNK = 0.1  # of the beginning, of every matrix
WHOLE = 0.9  # of the beginning: it shrinks since the last model that had as much
LAST = 3  # evaluations that say how it ended
LEARNT = 0.8  # of the loss that the run began with, or of guessing


def _look(chart: Chart) -> Iterator[Finding]:
    models, layout = _models(chart)
    chosen = matrices(layout) if layout is not None else []
    if layout is None or len(models) < 2 or not chosen:
        raise CannotSee("it takes two global models with a matrix to see them shrink")
    norms = np.stack([one.stats[chosen, NORM] for one in models]).astype(np.float64)
    finite = np.isfinite(norms).all(axis=1)
    kept, norms = [models[place] for place in np.flatnonzero(finite)], norms[finite]
    norms = norms[:, norms[0] > 0] if len(norms) else norms
    if len(norms) < 2 or not norms.shape[1]:
        raise CannotSee("it takes two finite global models whose matrices were not zero at first")
    if (norms[-1] < SHRUNK * norms[0]).all() and not _learns(chart):
        layers = tuple(layout.layers[number].name for number in chosen)
        yield _found(kept, norms, layers)


def _models(chart: Chart) -> tuple[list[ModelBlock], Layout | None]:
    """Those laid out like the first, in their order."""
    models = sorted(chart.models, key=lambda one: one.version)
    layout = next((one for one in chart.layouts if one.id == models[0].layout), None)
    return [one for one in models if one.layout == models[0].layout], layout


def _learns(chart: Chart) -> bool:
    try:
        curve = learning_curve(chart, LAST).finite
    except CannotSee:
        return False
    return len(curve) >= LAST and curve.level(-LAST, None) < LEARNT * beginning(chart, curve)


def _found(models: list[ModelBlock], norms: Floats, layers: tuple[str, ...]) -> Finding:
    whole = np.sqrt((norms**2).sum(axis=1))
    since = int(np.flatnonzero(whole >= WHOLE * whole[0])[-1])  # the model that was the last to be as large
    falling = whole[since:]
    left = float(np.median(falling[1:] / np.where(falling[:-1] > 0, falling[:-1], np.inf)))
    rounds = [one.round for one in models[since:-1] if one.round >= 0] or [max(models[-1].round, 0)]
    return write(
        RULE,
        Severity.CRITICAL,
        f"all matrices of the global model shrank to less than a tenth, together from a norm of {whole[0]:.3g} to "
        f"{whole[-1]:.3g}; a typical round left {left:.0%} of it: what clients send is divided by too much, or "
        "differences are loaded as if they were a model",
        rounds=rounds,
        layers=layers,
        evidence={
            "first_norm": short(whole[0]),
            "last_norm": short(whole[-1]),
            "round_leaves_ratio": short(left),
            "since_round": rounds[0],
        },
        next=changing(
            "divide what is summed by the sum of the weights of those who took part",
            "where clients send differences, add their average to the global model",
        ),
    )


RULE = WrittenRule(
    code="FL418",
    name="model shrinks",
    page=__doc__ or "",
    look=_look,
    needs=frozenset({Sight.MODELS}),
    explains=frozenset(
        {"FL402", "FL403", "FL404", "FL406", "FL407", "FL408", "FL411", "FL412", "FL413", "FL501", "FL503", "FL504"}
    ),
)
