"""What if more processes shared the clients of a round."""

from __future__ import annotations

from collections.abc import Iterator

from fedvitals.profile.whatif.batches import batches_s
from fedvitals.profile.whatif.model import EVERYBODY, Model
from fedvitals.profile.whatif.prediction import Declined, Prediction
from fedvitals.profile.whatif.simulate import arrivals
from fedvitals.profile.whatif.telling import told_of

KIND = "processes"


def changes(model: Model) -> Iterator[Prediction | Declined]:
    """Two, and as many as there are cores."""
    for workers in sorted({2, model.told.cores}):
        found = on_workers(model, workers)
        if found is not None:
            yield found


def on_workers(model: Model, workers: int) -> Prediction | Declined | None:
    """None where clients have computers of their own, or there are no more cores."""
    cores = model.told.cores
    if model.workers == EVERYBODY or not model.workers < workers <= cores or model.asked < 2:
        return None
    what = f"{workers} processes instead of {model.workers}"
    if model.told.threads * workers > cores:
        return Declined(what, KIND, f"each client already trains on {model.told.threads} of {cores} cores")
    tasks_s = batches_s(model) if model.batched else _tasks_s(model)
    if max(map(len, tasks_s), default=0) < 2:
        return Declined(what, KIND, "all clients of a round are one batch; how long half of one takes is not known")
    less = [
        _part_s(some, model.workers, 0.0, cores) + one.gap_s - _part_s(some, workers, one.gap_s, cores)
        for some, one in zip(tasks_s, model.rounds, strict=True)
    ]
    assumes = [
        f"clients do not slow each other down on {cores} cores, and starting the processes is not counted",
        "what happens between two clients goes on while others work, as far as there are cores",
    ]
    job: dict[str, object] = {"execute.workers": workers}
    job |= {} if model.batched else {"execute.executor": "processes"}
    return told_of(model, KIND, what, less, assumes, job)


def _part_s(tasks_s: list[float], workers: int, besides_s: float, cores: int) -> float:
    """How long these take; no less than all that is to be done takes on all cores."""
    alone = max(arrivals(tasks_s, workers), default=0.0)
    return max(alone, (sum(tasks_s) + besides_s) / cores) if workers > 1 else alone


def _tasks_s(model: Model) -> list[list[float]]:
    """Each client's seconds in each round, in order."""
    attempts: dict[str, int] = {}
    found = []
    for place in range(len(model.rounds)):
        some = []
        for client in model.draw.asked(place, ()):
            attempts[client] = attempts.get(client, -1) + 1
            some.append(model.task(client, attempts[client]).seconds)
        found.append(some)
    return found
