"""What if the server took updates as they come, a step for every b (FedBuff: Nguyen et al., AISTATS 2022).

As many clients are at work at all times as a round had, or as there are worker processes; who is done makes way for
another. The run ends when as many updates have come as were used.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any

from fedvitals.profile.whatif.flights import Flights, Plan
from fedvitals.profile.whatif.model import Model
from fedvitals.profile.whatif.prediction import Declined, Prediction
from fedvitals.profile.whatif.telling import NOT_OURS
from fedvitals.vocabulary import Outcome

KIND = "async"
ASK_S = 0.0001  # a client, as the engine's imitated server counts


def changes(model: Model) -> Iterator[Prediction | Declined]:
    """With a buffer of half a round's clients."""
    found = with_buffer(model, max(1, model.asked // 2))
    if found is not None:
        yield found


def with_buffer(model: Model, buffer: int) -> Prediction | None:
    """None where clients do not work side by side, or no round waits for more than one."""
    used = int((model.timeline.participations.outcome == Outcome.USED).sum())
    places = _places(model)
    if places < 2 or not used or buffer < 1:
        return None
    plan = _plan(model, places, used, buffer)
    total_s = Flights(model, plan).seconds()
    if total_s is None:
        return None
    wall_s = model.profile.wall_s
    predicted_s = max(wall_s - sum(one.wall_s for one in model.rounds), 0.0) + total_s
    return Prediction(
        change=f"run asynchronously, a step for every {f'{buffer} updates' if buffer > 1 else 'update'}",
        kind=KIND,
        predicted_s=predicted_s,
        round_s=total_s / plan.steps,
        saves=(wall_s - predicted_s) / wall_s if wall_s > 0 else 0.0,
        assumes=(
            f"as many updates as were used ({used}), {places} clients at work at a time",
            "a client takes as long as it did, again and again; one that goes away is waited for as long",
            "what stale updates do to learning is not predicted",
            model.draw.assumes,
        ),
        job=_job(model, plan) if model.told.is_job else None,
        unverified=None if model.told.is_job else NOT_OURS,
    )


def _places(model: Model) -> int:
    """How many would be at work at once; 0 where that cannot be made."""
    if model.side_by_side:
        return model.asked
    return min(model.workers, model.asked) if model.told.own_workers and not model.batched else 0


def _plan(model: Model, places: int, used: int, buffer: int) -> Plan:
    """As many steps as take the updates that were used, judged as often."""
    judged = _spans_s(model, "evaluate")
    steps = -(-used // buffer)
    return Plan(
        places=places,
        buffer=buffer,
        steps=steps,
        evaluate_every=max(1, steps // max(len(judged), 1)),
        ask_s=ASK_S if model.told.virtual and _spans_s(model, "aggregate", least_s=1e-12) else 0.0,
        step_s=_step_s(model, buffer, sum(judged)),
        evaluations_s=judged,
    )


def _step_s(model: Model, buffer: int, evaluations_s: float) -> float:
    """The server's part of a step: on the engine's own machine all that a round needs beside its clients; elsewhere
    what it aggregates, the model and each update once."""
    if model.told.one_machine:
        besides_s = sum(max(one.until_next_s - one.clients_s, 0.0) for one in model.rounds)
        return max(besides_s - evaluations_s, 0.0) / max(len(model.rounds), 1)
    aggregating = _spans_s(model, "aggregate")
    usual_s = median(aggregating) if aggregating else 0.0
    return usual_s * (buffer + 1) / (model.asked + 1) if model.told.virtual else usual_s


def _spans_s(model: Model, phase: str, least_s: float = 0.0) -> list[float]:
    """The server's phases of one kind."""
    took = [(one.end_ns - one.start_ns) / 1e9 for one in model.timeline.server if one.phase == phase]
    return [seconds for seconds in took if seconds >= least_s]


def _job(model: Model, plan: Plan) -> dict[str, Any]:
    job = {
        "server.mode": "async",
        "server.buffer": plan.buffer,
        "server.concurrency": plan.places,
        "server.over_select": 1.0,
        "server.deadline_s": 0.0,
        "train.rounds": plan.steps,
        "train.evaluate_every": plan.evaluate_every,
    }
    return job if model.told.virtual else job | {"execute.executor": "processes"}
