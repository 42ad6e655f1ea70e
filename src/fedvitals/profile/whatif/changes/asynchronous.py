"""What if the server took updates as they come, a step for every b (FedBuff: Nguyen et al., AISTATS 2022).

As many clients are at work at all times as a round had; who is done makes way for another. The run ends when as many
updates have come as were used.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from statistics import median
from typing import NamedTuple

import numpy as np

from fedvitals.profile.whatif.model import Model
from fedvitals.profile.whatif.prediction import Declined, Prediction
from fedvitals.profile.whatif.telling import NOT_OURS
from fedvitals.randomness import stream
from fedvitals.vocabulary import Outcome

KIND = "async"
ITS_WORKERS = "on the real clock as many clients are at work at once as there are worker processes"
MOST_WORK = 2_000_000  # participations that are played


class ServerTimes(NamedTuple):
    """What the server needs."""

    step_s: float
    evaluation_s: float
    evaluations: int


def changes(model: Model) -> Iterator[Prediction | Declined]:
    """With a buffer of half a round's clients."""
    found = with_buffer(model, max(1, model.asked // 2))
    if found is not None:
        yield found


def with_buffer(model: Model, buffer: int) -> Prediction | None:
    """None where clients do not work side by side, or no round waits for more than one."""
    used = int((model.timeline.participations.outcome == Outcome.USED).sum())
    if not model.side_by_side or model.asked < 2 or not used or buffer < 1:
        return None
    rounds_s = sum(one.wall_s for one in model.rounds)
    server = _server(model)
    total_s = _played(model, used, buffer, server)
    if total_s is None:
        return None
    wall_s = model.profile.wall_s
    predicted_s = max(wall_s - rounds_s, 0.0) + total_s
    assumes = (
        f"as many updates as were used ({used}), {model.asked} clients at work at a time, chosen at random",
        "a client takes as long as it did, again and again; one that goes away is waited for as long",
        "what stale updates do to learning is not predicted",
    )
    return Prediction(
        change=f"run asynchronously, a step for every {buffer} updates",
        kind=KIND,
        predicted_s=predicted_s,
        round_s=total_s / max(used / buffer, 1.0),
        saves=(wall_s - predicted_s) / wall_s if wall_s > 0 else 0.0,
        assumes=assumes,
        job=_job(model, used, buffer, server.evaluations) if model.told.is_job else None,
        unverified=_unverified(model),
    )


def _unverified(model: Model) -> str | None:
    if not model.told.is_job:
        return NOT_OURS
    return None if model.told.virtual else ITS_WORKERS


def _job(model: Model, used: int, buffer: int, evaluations: int) -> dict[str, object]:
    """As many steps as take the updates that were used, judged as often."""
    steps = -(-used // buffer)
    return {
        "server.mode": "async",
        "server.buffer": buffer,
        "server.concurrency": model.asked,
        "server.over_select": 1.0,
        "server.deadline_s": 0.0,
        "train.rounds": steps,
        "train.evaluate_every": max(1, steps // max(evaluations, 1)),
    }


def _server(model: Model) -> ServerTimes:
    """Its usual step, and its evaluations."""
    lengths: dict[str, list[float]] = {"aggregate": [], "evaluate": []}
    for one in model.timeline.server:
        if one.phase in lengths:
            lengths[one.phase].append((one.end_ns - one.start_ns) / 1e9)
    judged = lengths["evaluate"]
    return ServerTimes(
        median(lengths["aggregate"]) if lengths["aggregate"] else 0.0,
        float(np.mean(judged)) if judged else 0.0,
        len(judged),
    )


def _usual_s(model: Model) -> tuple[dict[str, float], float]:
    """How long clients take that deliver: each, and all of them. Nobody tells the server of one that went away."""
    took = {client: [task.seconds for task in some if task.delivered] for client, some in model.history.items()}
    own = {client: median(seconds) for client, seconds in took.items() if seconds}
    return own, median(own.values()) if own else 0.0


def _played(model: Model, used: int, buffer: int, server: ServerTimes) -> float | None:
    """Seconds until so many updates are taken in; None where clients hardly ever deliver."""
    names = list(model.timeline.clients)
    random = stream(0, "what-if asynchronous")
    idle = [names[place] for place in random.permutation(len(names)).tolist()]
    at_work: list[tuple[float, str, bool]] = []
    usual_s, all_usual_s = _usual_s(model)
    attempts: Counter[str] = Counter()

    def begin(now: float) -> None:
        client = idle.pop(int(random.integers(len(idle))))
        task = model.task(client, attempts[client])
        attempts[client] += 1
        seconds = task.seconds if task.delivered else max(task.seconds, usual_s.get(client, all_usual_s))
        heapq.heappush(at_work, (now + seconds, client, task.delivered))

    for _ in range(min(model.asked, len(names))):
        begin(0.0)
    came, free_s = 0, 0.0
    every = max(used // server.evaluations, 1) if server.evaluations else used + 1
    for _ in range(MOST_WORK):
        now, client, delivered = heapq.heappop(at_work)
        idle.append(client)
        begin(now)
        if not delivered:
            continue
        came += 1
        if came % buffer == 0 or came == used:
            free_s = max(free_s, now) + server.step_s
        if came % every == 0:
            free_s = max(free_s, now) + server.evaluation_s
        if came == used:
            return max(free_s, now)
    return None
