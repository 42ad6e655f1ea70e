"""Frozen or dead layer.

Sees: a trainable layer of a client's update that is exactly zero while other layers of the same update move. When the
layer moves in most of the cohort it is this client's fault, and it is named with the layer; when it stands still for
everybody in every round it is the job's. Integer buffers and layers known not to be trainable are left out, and so are
biases before a normalisation, which moves them by rounding alone, and clients whose rows are all learnt. A client's
layer stands still in most of its participations from the first such one on, or to the last of at least three.

Matters: a client whose layer stands still (requires_grad = False, a parameter left out of the optimizer) drags the
average of that layer back to where it was. A layer dead for everybody learns nothing at all.

Evidence: the layer, the rounds, and how many of the cohort moved it in the same rounds.

False alarms: it is an exact rule: none were seen in clean runs. Where a codec leaves values out of updates, zeros may
be its doing: then a layer stands still only where its sampled gradients are zero as well, which shows
`requires_grad = False` and not a parameter that the optimizer does not have. Rounds whose model is sick already (dead
units after an explosion make zero gradients) accuse nobody by themselves. A layer frozen on purpose for everybody is
reported once, as information, unless the model says that it is trainable.

Do: give that client's optimizer all parameters; look for requires_grad = False, for detach() and for torch.no_grad().

Papers: none.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedvitals.diagnose.chart import Chart, Singles
from fedvitals.diagnose.coded import thinned, trained_still
from fedvitals.diagnose.cohorts import row_medians, well
from fedvitals.diagnose.evidence.accusing import SCORED_CODES
from fedvitals.diagnose.learnt import all_learnt
from fedvitals.diagnose.rule import Sight, WrittenRule
from fedvitals.diagnose.words import listed
from fedvitals.diagnose.writing import see_client, write
from fedvitals.store.table import Bools, Ints
from fedvitals.vocabulary import Action, Finding, Grade, Severity

MOST_MOVE = 0.8  # share of the others whose layer must move before one that stands still is a single client's fault
ROUNDING = 1e-6  # of the longest layer
LEAST_HITS = 3  # participations in which a single client's layer stands still, of a time that ended
LEAST_SEEN = 2  # participations in which a layer must stand still to be dead for everybody


def _look(chart: Chart) -> Iterator[Finding]:
    still, moving = _still(chart)
    alone = _alone(chart, still, moving)
    yield from _of_clients(chart, alone)
    yield from _of_everybody(chart, still, moving, alone)


def _still(chart: Chart) -> tuple[Bools, Bools]:
    """[rows, layers]: which layers stand still, and which move, in updates that move at all."""
    updates = chart.updates
    assert updates is not None  # the rule needs it
    norms = updates.norms
    trained = np.array([_learns(layer.trainable, layer.dtype, layer.size) for layer in updates.layout.layers])
    matrices = trained & np.array([len(layer.shape) > 1 for layer in updates.layout.layers])
    judged = matrices if matrices.any() else trained
    # Where no matrix moves at all, its units are dead or it sent nothing: that is no layer left out.
    alive = updates.present & (np.nansum(norms[:, judged], axis=1) > 0) & ~chart.shared(all_learnt)
    seen = alive[:, None] & (trained & ~_rounding(norms, alive))[None, :]
    still = seen & (norms == 0)
    if still.any() and chart.shared(thinned):
        still &= trained_still(chart)
    return still, seen & ~still


def _rounding(norms: Singles, alive: Bools) -> Bools:
    """[layers]: those that are hardly moved by most updates that move them: what is left of a gradient of zero."""
    longest = norms[alive].max(axis=1, keepdims=True) if alive.any() else norms[:0, :1]
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(norms[alive] > 0, norms[alive] / longest, np.nan)
    middle = row_medians(shares.T.astype(np.float64))
    return np.asarray(middle < ROUNDING)


def _learns(trainable: bool | None, dtype: str, size: int) -> bool:
    return trainable is not False and "float" in dtype and size > 0


def _alone(chart: Chart, still: Bools, moving: Bools) -> Bools:
    """[rows, layers]: still while most of the cohort moves; in sick rounds, while all others move."""
    healthy = chart.shared(well)
    alone = np.zeros_like(still)
    if not still.any():
        return alone
    for _, rows in chart.cohorts:
        stands, moves = still[rows].sum(axis=0), moving[rows].sum(axis=0)
        share = moves / np.maximum(moves + stands - 1, 1)  # of the others
        enough = share >= MOST_MOVE if healthy[rows[0]] else share >= 1.0
        alone[rows] = still[rows] & (enough & (moves >= 2))[None, :]
    return alone


def _of_clients(chart: Chart, alone: Bools) -> Iterator[Finding]:
    table, updates = chart.participations, chart.updates
    assert updates is not None
    for client in np.unique(table.client[alone.any(axis=1)]):
        mine = np.flatnonzero((table.client == client) & updates.present)
        rows = mine[alone[mine].any(axis=1)]
        since = mine[table.round[mine] >= table.round[rows[0]]]
        meanwhile = since[table.round[since] <= table.round[rows[-1]]]
        hit = np.asarray(alone[rows].any(axis=0))
        lasts = len(rows) * 2 > (len(meanwhile) if len(rows) >= LEAST_HITS else len(since))
        # Now and then, or only on a sick model: units that were not reached, not a layer that was left out.
        if lasts and chart.shared(well)[rows].any():
            until = table.round[rows[-1]] if len(rows) * 2 <= len(since) else None
            yield _of_client(chart, int(client), rows, hit, until)


def _of_client(chart: Chart, client: int, rows: Ints, hit: Bools, until: int | None) -> Finding:
    table, updates = chart.participations, chart.updates
    assert updates is not None
    layers = _names(chart, hit)
    same = np.isin(table.round, table.round[rows]) & (table.client != client) & updates.present
    moved = int((updates.norms[same][:, hit] > 0).all(axis=1).sum())
    name = chart.clients[client]
    end = "on" if until is None else f"until round {until}"
    why = (
        f"{listed(layers)} of client {name} did not move at all in {len(rows)} participations from round "
        f"{table.round[rows[0]]} {end}; in the same rounds it moved in {moved} of {int(same.sum())} others"
    )
    return write(
        RULE,
        Severity.WARNING,
        why,
        grade=Grade.CERTAIN,
        rounds=table.round[rows],
        clients=(name,),
        layers=layers,
        evidence={"participations": len(rows), "others_moved": moved, "others": int(same.sum())},
        next=(
            Action(f"check client {name}: requires_grad of {layers[0]}, and whether its optimizer holds it"),
            Action(see_client(name)),
        ),
    )


def _of_everybody(chart: Chart, still: Bools, moving: Bools, alone: Bools) -> Iterator[Finding]:
    updates = chart.updates
    assert updates is not None
    dead = (still.sum(axis=0) >= LEAST_SEEN) & (moving.sum(axis=0) == 0)
    if not dead.any():
        return
    layers = _names(chart, dead)
    said = any(layer.trainable for layer, one in zip(updates.layout.layers, dead, strict=True) if one)
    count = int(still[:, dead].any(axis=1).sum())
    yield write(
        RULE,
        Severity.WARNING if said else Severity.INFO,
        f"{listed(layers)} never moved: zero in all {count} updates of the run while other layers moved",
        grade=Grade.CERTAIN,
        rounds=chart.participations.round[still[:, dead].any(axis=1)],
        layers=layers,
        evidence={"updates": count, "trainable": said},
        next=(
            Action(f"if it is not frozen on purpose: check that the optimizer holds {layers[0]} and that it is used"),
            Action("another initialisation, if its units are dead from the start (FL401)", safe=False),
        ),
    )


def _names(chart: Chart, hit: Bools) -> tuple[str, ...]:
    assert chart.updates is not None
    return tuple(layer.name for layer, one in zip(chart.updates.layout.layers, hit, strict=True) if one)


RULE = WrittenRule(
    code="FL409",
    name="frozen or dead layer",
    page=__doc__ or "",
    look=_look,
    explains=SCORED_CODES,
    needs=frozenset({Sight.UPDATES}),
)
