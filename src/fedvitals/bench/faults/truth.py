"""What really happened in a cell's run: whom the fault struck, when, and how much of it there was.

A fault that was planted and never did anything (its client was never chosen, its rows hold nothing to spoil) is for
nobody to find: such a client is not counted as bad. Nor does a flip, say, do anything to a client that was handed a
model of NaN, because another had ruined it before: what it sends is NaN with or without it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from fedvitals.diagnose.chart import NORM, Chart
from fedvitals.faults.data import NanBatch
from fedvitals.faults.fault import DataFault, Fault, Owner, Sending, UpdateFault
from fedvitals.faults.registry import make
from fedvitals.faults.training import DroppedLastBatch, FrozenLayer
from fedvitals.faults.update import NanUpdate
from fedvitals.faults.work import LocalWork
from fedvitals.train.engine import Training
from fedvitals.train.orders import batch_orders

IN_TRAINING = frozenset({"exploding-lr", "tiny-lr", "frozen-layer", "missing-zero-grad"})  # seen in what is sent


class Truth(NamedTuple):
    """By bad client: the rounds in which it was struck, the share of its rows that is spoilt, the layers that are at
    fault and the first bad step of its first struck participation."""

    struck: dict[str, tuple[int, ...]]
    hit: dict[str, float]
    layers: dict[str, tuple[str, ...]]
    steps: dict[str, int]


def truth_of(training: Training, chart: Chart) -> Truth:
    """Of a training with at most one fault, after it ran."""
    if not training.job.faults:
        return Truth({}, {}, {}, {})
    fault = make(training.job.faults[0])
    struck = _struck(training, fault, chart)
    hit = {client: share for client in struck if (share := _share(training, fault, client)) is not None}
    real = {client: rounds for client, rounds in struck.items() if hit.get(client, 1.0) > 0}
    attempts = {client: _attempt(chart, client, rounds[0]) for client, rounds in real.items()}
    layers = {client: named for client, one in attempts.items() if (named := _layers(training, fault, client, one))}
    steps = {
        client: step for client, one in attempts.items() if (step := _step(training, fault, client, one)) is not None
    }
    return Truth(real, hit, layers, steps)


def _struck(training: Training, fault: Fault, chart: Chart) -> dict[str, tuple[int, ...]]:
    found = {}
    names = {name: number for number, name in enumerate(chart.clients)}
    table, lost = chart.participations, _lost_models(chart) if _hidden_by_nan(fault) else []
    for client in training.injector.culprits():
        rows = chart.histories[names[client]] if client in names else np.empty(0, np.int64)
        rounds = table.round[rows[~np.isin(table.base_version[rows], lost)]].tolist()
        if getattr(fault, "needs_past", False):
            rounds = rounds[1:]  # the first time there is nothing old to send
        hit = tuple(number for number in rounds if training.injector.active(client, number))
        if hit:
            found[client] = hit
    return found


def _lost_models(chart: Chart) -> list[int]:
    """Versions of the global model that are not finite."""
    blocks = ((one.version, one.stats[:, NORM], one.nonfinite) for one in chart.models)
    return [version for version, norms, bad in blocks if not np.isfinite(norms).all() or np.any(bad)]


def _hidden_by_nan(fault: Fault) -> bool:
    """Whether a client that is handed a model of NaN sends the same with this fault as without."""
    if isinstance(fault, UpdateFault):
        lost, earlier = torch.full((4,), torch.nan), torch.ones(4)
        return not bool(fault.sent(lost, Sending(0, "", 1, 1, others=[lost], past=[earlier])).isfinite().any())
    return isinstance(fault, DataFault) or fault.kind in IN_TRAINING


def _share(training: Training, fault: Fault, client: str) -> float | None:
    """Of this client's rows, those that the fault touches; None where it does not strike rows."""
    federation = training.federation
    rows = federation.train_rows[federation.clients.index(client)]
    if isinstance(fault, DroppedLastBatch):
        size = training.job.train.batch_size
        return (len(rows) % size) / len(rows) if len(rows) > size else 0.0
    if not isinstance(fault, DataFault):
        return None
    x, y = federation.x[rows], federation.y[rows]
    classes = max(federation.classes, int(y.max()) + 1, 2)
    other_x, other_y = fault.spoilt(x, y, Owner(training.job.seed, client, classes))
    changed = (other_y != y) | (other_x != x).flatten(1).any(dim=1)
    return float(changed.float().mean())


def _attempt(chart: Chart, client: str, round: int) -> int:
    """Which of its participations this was."""
    table = chart.participations
    own = (table.client == chart.clients.index(client)) & (table.round == round)
    return int(table.attempt[own][0])


def _layers(training: Training, fault: Fault, client: str, attempt: int) -> tuple[str, ...]:
    """Where single layers are at fault, their names."""
    model = training.model
    if isinstance(fault, FrozenLayer):
        trainable = [(layer.name, layer.shape) for layer in model.layers if layer.trainable]
        return (trainable[fault.layer(trainable)][0],)
    if not isinstance(fault, NanUpdate):
        return ()
    sent = fault.sent(torch.zeros(model.size), Sending(training.job.seed, client, attempt, 0))
    broken = zip(model.layers, model.slices, strict=True)
    return tuple(layer.name for layer, part in broken if bool(sent[part].isnan().any()))


def _step(training: Training, fault: Fault, client: str, attempt: int) -> int | None:
    """The step whose batch holds the first spoilt row, where one row spoils a training."""
    if not isinstance(fault, NanBatch):
        return None
    spec, federation = training.job.train, training.federation
    index = federation.clients.index(client)
    rows = federation.train_rows[index]
    owner = Owner(training.job.seed, client, federation.classes)
    x, _ = fault.spoilt(federation.x[rows], federation.y[rows], owner)
    bad = x.flatten(1).isnan().any(dim=1).numpy()
    work = LocalWork(client=index, name=client, attempt=attempt, round=0, lr=spec.lr)
    order = batch_orders(training.job.seed, [work], [len(rows)], spec.epochs)[0, 0]
    return int(np.flatnonzero(bad[order])[0]) // spec.batch_size
