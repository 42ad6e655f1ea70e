"""The simulator: the rounds of a model again, with some durations changed, some clients away, or less patience."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fedvitals.profile.whatif.model import Model, Task

LOOK_AGAIN_S = 60.0  # after which the engine looks again where it found nobody
MOST_LOOKS = 1000


@dataclass(frozen=True, slots=True)
class Change:
    """What is different. Without arguments: nothing."""

    seconds: Sequence[float] | None = None  # of each of the timeline's participations
    away: frozenset[str] = field(default_factory=frozenset)
    wanted: int | None = None  # go on with the first so many
    deadline_s: float | None = None
    workers: int | None = None


class Simulated(NamedTuple):
    """What comes of it, a round."""

    clients_s: tuple[float, ...]  # from the clients' start until the round goes on
    updates: tuple[int, ...]


def simulated(model: Model, change: Change) -> Simulated:
    """All rounds, one after the other."""
    attempts: Counter[str] = Counter()
    busy: dict[str, float] = {}
    parts: list[float] = []
    updates: list[int] = []
    now = 0.0
    for place, one in enumerate(model.rounds):
        waited, asked = _asked(model, change, place, now, busy)
        tasks = [model.task(client, attempts[client]) for client in asked]
        attempts.update(asked)
        arrived = arrivals(_durations(tasks, change), change.workers or model.workers)
        end = _closed(model, change, tasks, arrived)
        begun = now + waited + one.before_s
        if not model.told.own_workers:
            late = zip(tasks, arrived, strict=True)
            busy |= {task.client: begun + at for task, at in late if task.client in end.late}
        parts.append(waited + end.at_s + model.told.replacing_s * len(end.late))
        updates.append(end.updates)
        now += max(one.until_next_s - one.clients_s, 0.0) + parts[-1]
    return Simulated(tuple(parts), tuple(updates))


def _durations(tasks: Sequence[Task], change: Change) -> list[float]:
    if change.seconds is None:
        return [task.seconds for task in tasks]
    return [change.seconds[task.row] for task in tasks]


def _asked(model: Model, change: Change, place: int, now: float, busy: dict[str, float]) -> tuple[float, list[str]]:
    """Who is asked, and how long that takes: where nobody is there, somebody is waited for."""
    for look in range(MOST_LOOKS):
        waited = look * LOOK_AGAIN_S
        still = [client for client, until in busy.items() if until > now + waited]
        away = change.away.union(still) if still else change.away
        asked = model.draw.asked(place, away, look)
        if asked or not (still or model.draw.comes_and_goes):
            return waited, asked
    return 0.0, []


class Closed(NamedTuple):
    """The end of a round's waiting."""

    at_s: float
    late: frozenset[str]
    updates: int


def _closed(model: Model, change: Change, tasks: Sequence[Task], arrived: Sequence[float]) -> Closed:
    """When the round goes on. Where it has neither a deadline nor enough with the first, it waits for everybody, except
    whom it did not wait for then."""
    wanted, deadline_s = model.patience
    wanted = change.wanted if change.wanted is not None else wanted
    deadline_s = change.deadline_s if change.deadline_s is not None else deadline_s
    pairs = list(zip(tasks, arrived, strict=True))
    if wanted is None and deadline_s is None:
        waited_for = [at for task, at in pairs if not task.late]
        late = frozenset(task.client for task, _ in pairs if task.late)
        return Closed(max(waited_for, default=0.0), late, sum(task.delivered and not task.late for task in tasks))
    return closed(
        {task.client: at for task, at in pairs if task.delivered},
        [at for task, at in pairs if not task.delivered],
        min(wanted or len(tasks), len(tasks)),
        deadline_s or math.inf,
    )


def closed(arrived_s: dict[str, float], missing_s: Sequence[float], wanted: int, deadline_s: float) -> Closed:
    """The first `wanted` within the deadline are in time. A round that has them closes at once; another waits for
    everybody whom it may yet hear of, at most until its deadline."""
    quickest = sorted(arrived_s, key=lambda client: arrived_s[client])
    in_time = [client for client in quickest if arrived_s[client] <= deadline_s][:wanted]
    late = frozenset(arrived_s).difference(in_time)
    if in_time and len(in_time) == wanted:
        return Closed(arrived_s[in_time[-1]], late, wanted)
    return Closed(min(deadline_s, max([*arrived_s.values(), *missing_s], default=0.0)), late, len(in_time))


def arrivals(durations: Sequence[float], workers: int) -> list[float]:
    """When each is done, where so many workers take the next one as soon as they are free."""
    if workers >= len(durations):
        return list(durations)
    free = [0.0] * workers
    found = []
    for seconds in durations:
        done = heapq.heappop(free) + seconds
        heapq.heappush(free, done)
        found.append(done)
    return found
