"""What if the global model were evaluated less often."""

from __future__ import annotations

from collections.abc import Iterator

from fedvitals.profile.timeline import overlapping
from fedvitals.profile.whatif.model import Model
from fedvitals.profile.whatif.prediction import Declined, Prediction
from fedvitals.profile.whatif.telling import told_of

KIND = "evaluate"
TIMES = 5


def changes(model: Model) -> Iterator[Prediction | Declined]:
    """A fifth of the evaluations."""
    found = less_often(model, TIMES)
    if found is not None:
        yield found


def less_often(model: Model, times: int) -> Prediction | None:
    """None where the rounds' evaluations took no time, or there are too few of them."""
    took = _evaluations_s(model)
    now = int(model.told.number("train.evaluate_every", 1.0))
    rounds = len(model.rounds)
    every = now * times
    if times < 1 or every > rounds or len(took) != _count(rounds, now) or not sum(took.values()):
        return None
    lengths = list(took.values())
    # The n-th of them is as long as the n-th was: some loops judge more at every tenth. The last is always made.
    count = _count(rounds, every)
    kept = [*lengths[: count - 1], lengths[-1]]
    places = [place for place in range(rounds) if (place + 1) % every == 0 or place + 1 == rounds]
    less = [took.get(place, 0.0) for place in range(rounds)]
    for place, seconds in zip(places, kept, strict=True):
        less[place] -= seconds
    return told_of(
        model,
        KIND,
        f"evaluate every {every} rounds instead of every {f'{now} rounds' if now > 1 else 'round'}",
        less,
        ["an evaluation takes as long as before"],
        {"train.evaluate_every": every},
    )


def _count(rounds: int, every: int) -> int:
    return rounds // max(every, 1) + (rounds % max(every, 1) > 0)


def _evaluations_s(model: Model) -> dict[int, float]:
    """Seconds of the server's evaluations, by the place of the round; of rounds that had any."""
    found = {}
    stretches = [one for one in model.timeline.server if one.phase == "evaluate"]
    for place, one in enumerate(model.timeline.rounds):
        inside = list(overlapping(stretches, one.start_ns, one.end_ns or one.start_ns))
        if inside:
            found[place] = sum(part.end_ns - part.start_ns for part in inside) / 1e9
    return found
