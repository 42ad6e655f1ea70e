"""Differences submitted.

Sees: clients whose update is the mirror image of the model that they were given, in norm and in both ends of a layer,
for layers that hold nearly all of the model: what they handed over is then next to nothing beside it, as the
difference is that a training makes.

Matters: an update is what was submitted minus the model of the round. Of a difference that is minus the model, and all
that is told of such updates (norms, angles, who is unlike whom) is about the wrong thing. A server that averages models
and gets a difference from one client shrinks its model.

Evidence: how many of the participations are so, and the norms of an update and of its model.

False alarms: none were seen. A training that makes all of a model nothing, by a weight decay that is far too large,
looks the same.

Do: hand over the trained model: `c.submit(model.state_dict())`. Where differences are sent, add the model of the round
first.

Papers: none.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedvitals.diagnose.chart import MAX, MIN, NORM, Chart, Singles, Updates
from fedvitals.diagnose.evidence.accusing import SCORED_CODES
from fedvitals.diagnose.evidence.measures import trained
from fedvitals.diagnose.rule import CannotSee, Sight, WrittenRule
from fedvitals.diagnose.words import listed
from fedvitals.diagnose.writing import short, write
from fedvitals.store.table import Bools
from fedvitals.vocabulary import Action, Finding, Grade, Severity

NEAR = 0.25  # of the layer's norm: a training of one round moves it by less
ENDS = 0.5  # of the layer's largest value, which a training may move further
NEARLY_ALL = 0.9  # of a client's participations, and of a model's squared norm: biases are small, and may leap
LEAST = 2  # participations, and layers that are not nothing


def _look(chart: Chart) -> Iterator[Finding]:
    mirrored, known = _mirrored(chart)
    if not known.any():
        raise CannotSee("no update is known beside the model that it was made from")
    table = chart.participations
    counts = np.bincount(table.client[known], minlength=len(chart.clients))
    marks = np.bincount(table.client[mirrored], minlength=len(chart.clients))
    whose = np.flatnonzero((marks >= LEAST) & (marks >= NEARLY_ALL * counts))
    if len(whose):
        yield _finding(chart, np.asarray(mirrored & np.isin(table.client, whose)), int((counts > 0).sum()))


def _finding(chart: Chart, rows: Bools, clients: int) -> Finding:
    table = chart.participations
    names = chart.names(np.unique(table.client[rows]))
    everybody = 2 * len(names) > clients
    who = f"{len(names)} of {clients} clients" if everybody else f"client{'s' * (len(names) > 1)} {listed(names)}"
    norm = float(np.median(table.update_norm[rows]))
    return write(
        RULE,
        Severity.WARNING,
        f"{who} handed over what looks like a difference instead of a model: less the model of the round it is that "
        f"model's mirror image, with a norm of {norm:.3g}, and what is told of such updates means nothing",
        grade=Grade.ACCUSED,
        rounds=table.round[rows],
        clients=() if everybody else names,
        evidence={"participations": int(rows.sum()), "clients": len(names), "of": clients, "update_norm": short(norm)},
        next=(Action("hand over the trained model, c.submit(model.state_dict()), not what it was changed by"),),
    )


def _mirrored(chart: Chart) -> tuple[Bools, Bools]:
    """Participations whose update is minus the model, and those of which that can be told."""
    table, updates = chart.participations, chart.updates
    mirrored, known = np.zeros((2, len(table)), bool)
    if updates is None:
        return mirrored, known
    for one in chart.models:
        rows = np.flatnonzero(updates.present & (table.base_version == one.version))
        if one.layout == updates.layout.id and len(rows):
            judged = trained(updates) & (one.stats[:, NORM] > 0) & np.isfinite(one.stats[:, NORM])
            if judged.sum() >= LEAST:
                known[rows] = True
                mirrored[rows] = _mirror(one.stats[judged], updates, rows, judged)
    return mirrored, known


def _mirror(model: Singles, updates: Updates, rows: np.ndarray, judged: Bools) -> Bools:
    stats = updates.stats[rows][:, judged]
    largest = ENDS * np.abs(model[:, [MIN, MAX]]).max(axis=1)
    near = np.abs(stats[:, :, NORM] - model[:, NORM]) <= NEAR * model[:, NORM]
    near &= np.abs(stats[:, :, MIN] + model[:, MAX]) <= largest
    near &= np.abs(stats[:, :, MAX] + model[:, MIN]) <= largest
    squares = model[:, NORM].astype(np.float64) ** 2
    return np.asarray(near @ squares >= NEARLY_ALL * squares.sum())


RULE = WrittenRule(
    code="FL905",
    name="differences submitted",
    page=__doc__ or "",
    look=_look,
    needs=frozenset({Sight.UPDATES, Sight.MODELS}),
    explains=frozenset({"FL409", "FL410", "FL412", "FL413", "FL414", "FL416", "FL501", "FL505"}) | SCORED_CODES,
)
