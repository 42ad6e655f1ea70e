"""From two simulations, or a difference in seconds, to what is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from fedvitals.profile.whatif.model import Model
from fedvitals.profile.whatif.prediction import Prediction
from fedvitals.profile.whatif.simulate import Change, Simulated, simulated

NOT_OURS = "the run's configuration is no job of the engine"


def told_of(
    model: Model,
    kind: str,
    change: str,
    less_s: Sequence[float],
    assumes: Sequence[str],
    job: Mapping[str, Any] | None = None,
    unverified: str | None = None,
) -> Prediction:
    """A prediction from how much shorter each round is; by more than it took, as odd clocks would have it, none is."""
    wall_s = model.profile.wall_s
    less_s = [min(less, max(one.wall_s, one.until_next_s)) for one, less in zip(model.rounds, less_s, strict=True)]
    saved_s = min(sum(less_s), wall_s)
    rounds = [max(one.wall_s - less, 0.0) for one, less in zip(model.rounds, less_s, strict=True)]
    if unverified is None and not model.told.is_job:
        unverified = NOT_OURS
    return Prediction(
        change=change,
        kind=kind,
        predicted_s=wall_s - saved_s,
        round_s=median(rounds) if rounds else 0.0,
        saves=saved_s / wall_s if wall_s > 0 else 0.0,
        assumes=tuple(assumes),
        job=None if job is None or not model.told.is_job else dict(job),
        unverified=unverified,
    )


def about_late(model: Model) -> str:
    """What becomes of clients that a round does not wait for."""
    if model.told.own_workers:
        return "who is late is stopped, and another worker started"
    return "who is late is not asked again before it is done"


def less_by(model: Model, change: Change) -> list[float]:
    """Seconds by which the simulator's rounds are shorter with the change."""
    return difference(model.before, simulated(model, change))


def difference(one: Simulated, other: Simulated) -> list[float]:
    return [a - b for a, b in zip(one.clients_s, other.clients_s, strict=True)]
