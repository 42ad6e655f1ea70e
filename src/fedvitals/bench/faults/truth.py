"""What really happened in a cell's run: whom the fault struck, when, and how much of it there was.

A fault that was planted and never did anything (its client was never chosen, its rows hold nothing to spoil) is for
nobody to find: such a client is not counted as bad.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.faults.fault import DataFault, Fault, Owner
from fedvitals.faults.registry import make
from fedvitals.faults.training import DroppedLastBatch, FrozenLayer
from fedvitals.train.engine import Training


class Truth(NamedTuple):
    """`struck`: bad client -> rounds in which it was struck; `hit`: bad client -> share of its rows that is spoilt."""

    struck: dict[str, tuple[int, ...]]
    hit: dict[str, float]
    layers: tuple[str, ...]


def truth_of(training: Training, chart: Chart) -> Truth:
    """Of a training with at most one fault, after it ran."""
    if not training.job.faults:
        return Truth({}, {}, ())
    fault = make(training.job.faults[0])
    struck = _struck(training, fault, chart)
    hit = {client: share for client in struck if (share := _share(training, fault, client)) is not None}
    real = {client: rounds for client, rounds in struck.items() if hit.get(client, 1.0) > 0}
    return Truth(real, hit, _layers(training, fault))


def _struck(training: Training, fault: Fault, chart: Chart) -> dict[str, tuple[int, ...]]:
    found = {}
    names = {name: number for number, name in enumerate(chart.clients)}
    for client in training.injector.culprits():
        rows = chart.histories[names[client]] if client in names else np.empty(0, np.int64)
        rounds = chart.participations.round[rows].tolist()
        if getattr(fault, "needs_past", False):
            rounds = rounds[1:]  # the first time there is nothing old to send
        hit = tuple(number for number in rounds if training.injector.active(client, number))
        if hit:
            found[client] = hit
    return found


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


def _layers(training: Training, fault: Fault) -> tuple[str, ...]:
    """Where one layer is at fault, its name."""
    if not isinstance(fault, FrozenLayer):
        return ()
    trainable = [(layer.name, layer.shape) for layer in training.model.layers if layer.trainable]
    return (trainable[fault.layer(trainable)][0],)
