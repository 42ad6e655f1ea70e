"""The run played without rounds: places that are always taken, and a step of the server for every so many updates.

As the engine does it (train/asynchronous; a test holds them and this together): who is done makes way for another, who
has an update in the buffer waits for the step, and while the server is at work what arrives waits.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from fedvitals.profile.whatif.model import Model
from fedvitals.profile.whatif.simulate import LOOK_AGAIN_S, MOST_LOOKS

MOST_WORK = 2_000_000  # participations that are played


@dataclass(frozen=True, slots=True)
class Plan:
    """What is played, and what the server needs for it."""

    places: int
    buffer: int
    steps: int
    evaluate_every: int  # steps
    ask_s: float  # a client
    step_s: float
    evaluations_s: Sequence[float]  # as they were, one after the other; those beyond begin anew


class Flights:
    """One play."""

    def __init__(self, model: Model, plan: Plan) -> None:
        self._model = model
        self._plan = plan
        self._now_s = 0.0
        self._at_work: list[tuple[float, int, str, bool]] = []  # when, in which order asked, who, whether it delivers
        self._busy: set[str] = set()  # at work, or with an update in the buffer
        self._attempts: Counter[str] = Counter()
        self._begun = 0  # participations
        self._turn = 0
        self._judged = 0
        self._own_s, self._usual_s = _usual_s(model)

    def seconds(self) -> float | None:
        """Until the last step is made; None where clients hardly ever deliver."""
        for step in range(self._plan.steps):
            if not self._filled(step):
                return None
            self._now_s += self._plan.step_s
            if (step + 1) % self._plan.evaluate_every == 0 or step + 1 == self._plan.steps:
                self._evaluate()
        return self._now_s

    def _filled(self, step: int) -> bool:
        """Whether the buffer of a step ever is."""
        buffer: set[str] = set()
        look = 0
        while True:
            self._ask(step, look)
            if self._at_work:
                due_s, _, client, delivered = heapq.heappop(self._at_work)
                self._now_s = max(self._now_s, due_s)
                if delivered:
                    buffer.add(client)
                else:
                    self._busy.discard(client)
            elif buffer:
                break
            else:
                look += 1
                self._now_s += LOOK_AGAIN_S
            if len(buffer) >= self._plan.buffer:
                break
            if look > MOST_LOOKS or self._begun > MOST_WORK:
                return False
        self._busy -= buffer
        return True

    def _ask(self, step: int, look: int) -> None:
        free = self._plan.places - len(self._at_work)
        if free < 1:
            return
        chosen = self._model.draw.taken(self._turn, step, self._busy, free, look)
        self._turn += bool(chosen)
        for client in chosen:
            self._begin(client)
        self._now_s += self._plan.ask_s * len(chosen)

    def _begin(self, client: str) -> None:
        task = self._model.task(client, self._attempts[client])
        seconds = task.seconds
        if not task.delivered:  # nobody tells the server of one that went away
            seconds = max(seconds, self._own_s.get(client, self._usual_s))
        heapq.heappush(self._at_work, (self._now_s + seconds, self._begun, client, task.delivered))
        self._busy.add(client)
        self._attempts[client] += 1
        self._begun += 1

    def _evaluate(self) -> None:
        took = self._plan.evaluations_s
        if took:
            self._now_s += took[self._judged % len(took)]
        self._judged += 1


def _usual_s(model: Model) -> tuple[dict[str, float], float]:
    """How long clients take that deliver: each, and all of them."""
    took = {client: [task.seconds for task in some if task.delivered] for client, some in model.history.items()}
    own = {client: median(seconds) for client, seconds in took.items() if seconds}
    return own, median(own.values()) if own else 0.0
