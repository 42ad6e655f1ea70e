"""Which trials of a job are worth more rounds: successive halving (K. Jamieson, A. Talwalkar, AISTATS 2016).

The method is small, and its trials have to be runs of the store that a later call takes up again, ranked by several
costs at once: so it is written here, rather than taken with a framework whose own store and single objective would have
to be worked around.

A trial that has not reached the target yet is judged by what it would cost to get there. The job as it is serves as
the measure: a trial that is after 3 rounds where the job was after 6 of its 24 is expected to need 12.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedvitals.profile.pareto import Trial

RUNGS = 3
LONGER = 3  # times as many rounds on the next rung
KEPT = 2  # one in so many goes on to it: more than a third, since a front is wanted and not one winner

Curve = Sequence[tuple[int, float]]  # rounds that were done, and the accuracy after them


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a trial stands."""

    trial: Trial
    rounds: int  # of the job, that it was given
    reached: bool  # the target: its costs are all that it takes


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a trial is expected to take to the target."""

    rounds: float
    wall_s: float
    wire_bytes: float
    memory_bytes: float


def rungs(rounds: int, least: int) -> tuple[int, ...]:
    """A ninth, a third, and all of the job's rounds; never so few that a target cannot be held in them."""
    found = (max(least, math.ceil(rounds / LONGER**power)) for power in reversed(range(RUNGS)))
    return tuple(dict.fromkeys(min(one, rounds) for one in found))


def outlook(standing: Standing, measure: Curve) -> Outlook:
    """Costs that grow with the rounds are scaled by those that are expected; memory is what it is."""
    trial = standing.trial
    times = 1.0 if standing.reached else _times(trial.accuracy, measure)
    costs = (trial.wall_s, trial.wire_bytes)
    wall_s, wire_bytes = (math.inf if one is None else one * times for one in costs)
    memory = math.inf if trial.memory_bytes is None else trial.memory_bytes
    return Outlook(standing.rounds * times, wall_s, wire_bytes, memory)


def _times(accuracy: float | None, measure: Curve) -> float:
    """How many times as many rounds it takes to the end of the measure as to this accuracy."""
    if not accuracy or not measure:
        return math.inf
    last = measure[-1][0]
    first, begun = measure[0]
    if accuracy < begun:
        return last / (first * accuracy / begun)
    return last / next((rounds for rounds, seen in measure if seen >= accuracy), last)


def kept(standings: Sequence[Standing], measure: Curve, most_rounds: int) -> list[int]:
    """The places of the better half, at least one: in turn the least time, bytes, memory and rounds that are expected.

    Those that would not be there within the rounds of the job come after all others, by how far they are.
    """
    fine = [place for place, one in enumerate(standings) if one.trial.problem is None]
    seen = {place: outlook(standings[place], measure) for place in fine}
    hopeful = [place for place in fine if seen[place].rounds <= most_rounds]
    orders = [
        sorted(hopeful, key=lambda place: (seen[place].wall_s, place)),
        sorted(hopeful, key=lambda place: (seen[place].wire_bytes, place)),
        sorted(hopeful, key=lambda place: (seen[place].memory_bytes, place)),
        sorted(hopeful, key=lambda place: (seen[place].rounds, place)),
    ]
    in_turn = [place for places in zip(*orders, strict=True) for place in places]
    others = sorted(set(fine) - set(hopeful), key=lambda place: (seen[place].rounds, place))
    ranked = list(dict.fromkeys([*in_turn, *others]))
    return ranked[: max(1, len(standings) // KEPT)]
