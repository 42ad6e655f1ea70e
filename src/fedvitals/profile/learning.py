"""How a run learned: the first round that reached a target, what that took, and how the clients' losses lay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedvitals.profile.timeline import Timeline
from fedvitals.store.table import Floats
from fedvitals.vocabulary import Evaluation


@dataclass(frozen=True, slots=True)
class Reached:
    """When the global model was first as good as this."""

    accuracy: float  # the target
    round: int
    rounds: int  # how many it took
    seconds: float
    bytes_up: float  # over the wire, as far as they are known
    bytes_down: float


def reached(timeline: Timeline, evaluations: Sequence[Evaluation], target: float) -> Reached | None:
    """None where the run never was."""
    judged = sorted((one for one in evaluations if one.client is None), key=lambda one: one.at_ns)
    first = next((one for one in judged if one.accuracy is not None and one.accuracy >= target), None)
    if first is None:
        return None
    table = timeline.participations
    until = table.round <= first.round
    return Reached(
        accuracy=target,
        round=first.round,
        rounds=sum(one.number <= first.round for one in timeline.rounds),
        seconds=first.at_ns / 1e9,
        bytes_up=float(np.nansum(table.wire_bytes_up[until])),
        bytes_down=float(np.nansum(table.wire_bytes_down[until])),
    )


def best_accuracy(evaluations: Sequence[Evaluation]) -> float | None:
    """Of the global model."""
    known = [one.accuracy for one in evaluations if one.client is None and one.accuracy is not None]
    return max((value for value in known if np.isfinite(value)), default=None)


def first_losses(timeline: Timeline) -> tuple[list[int], Floats]:
    """The rounds in which clients told the loss of their first steps, and [rounds, 3]: its quartiles."""
    table = timeline.participations
    rounds, quarters = [], []
    for one in timeline.rounds:
        losses = table.first_loss[slice(*np.searchsorted(table.round, [one.number, one.number + 1]).tolist())]
        losses = losses[np.isfinite(losses)]
        if len(losses):
            rounds.append(one.number)
            quarters.append(np.percentile(losses, [25, 50, 75]))
    return rounds, np.array(quarters, dtype=np.float64).reshape(len(rounds), 3)
