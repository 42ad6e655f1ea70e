"""What if the slowest client were not asked any more."""

from __future__ import annotations

from collections.abc import Iterator

from fedvitals.profile.whatif.batches import less_without
from fedvitals.profile.whatif.model import Model
from fedvitals.profile.whatif.prediction import Declined, Prediction
from fedvitals.profile.whatif.simulate import Change
from fedvitals.profile.whatif.telling import less_by, told_of

KIND = "drop"
TRIED = 3


def changes(model: Model) -> Iterator[Prediction | Declined]:
    """Of those that were waited for longest, the one whose leaving saves most."""
    by_waiting = sorted(model.profile.clients, key=lambda one: (-one.held_s, -one.busy_s))
    tried = [without(model, (one.client,)) for one in by_waiting[:TRIED]]
    found = [one for one in tried if isinstance(one, Prediction)]
    yield from sorted(found, key=lambda one: one.predicted_s)[:1] or [one for one in tried if one is not None][:1]


def without(model: Model, clients: tuple[str, ...]) -> Prediction | Declined | None:
    """None where nobody would be left whose update ever came."""
    away = frozenset(clients)
    left = [task for client, tasks in model.history.items() if client not in away for task in tasks]
    if not clients or not any(task.delivered for task in left):
        return None
    what = f"drop client{'s' if len(clients) > 1 else ''} {', '.join(clients)}"
    assumes = ["what the loss of its data does to learning is not predicted", model.draw.assumes]
    if model.batched:
        less = less_without(model, away)
        if less is None:
            return Declined(what, KIND, "clients are trained as one batch, and how long one takes cannot be told")
        assumes.append("a batch takes a time a step and a time a client's step, as fitted to this run's batches")
    else:
        less = less_by(model, Change(away=away))
    excluded = sorted(model.told.names("train.exclude").union(clients))
    return told_of(model, KIND, what, less, assumes, {"train.exclude": excluded})
