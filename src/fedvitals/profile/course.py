"""The course of a run: whether its rounds became longer, how often clients answered, and how often they failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from fedvitals.diagnose.rule import CannotSee
from fedvitals.diagnose.timing.round_time_grows import RULE as ROUND_TIME_GROWS
from fedvitals.profile.rounds import RoundProfile
from fedvitals.profile.timeline import Timeline
from fedvitals.profile.verdict import chart_of_times
from fedvitals.vocabulary import Outcome

LEAST_ROUNDS = 8  # below that a first and a last quarter say nothing


@dataclass(frozen=True, slots=True)
class Trend:
    """Rounds at the beginning and at the end of the run."""

    first_s: float  # the median of the first quarter
    last_s: float
    quarter: int  # rounds


@dataclass(frozen=True, slots=True)
class Regression:
    """From some round on rounds took longer, by more than chance (FL205)."""

    rounds: tuple[int, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Course:
    """Over the whole run. Shares are of how often clients were asked; None where nobody was."""

    trend: Trend | None  # None where rounds are too few, or took no time
    regressions: tuple[Regression, ...]
    asked: int  # times that a client was
    answered: int  # with work that was finished, in time or not
    late: int
    failed: int  # or never came back, or never was heard of

    @property
    def availability(self) -> float | None:
        return self.answered / self.asked if self.asked else None

    @property
    def failure_rate(self) -> float | None:
        return self.failed / self.asked if self.asked else None


def course(timeline: Timeline, rounds: Sequence[RoundProfile]) -> Course:
    outcome = timeline.participations.outcome
    unheard = sum(one.asked - one.clients for one in rounds)
    failed = int(np.isin(outcome, (Outcome.FAILED, Outcome.DROPPED)).sum())
    return Course(
        trend=_trend([one.wall_s for one in rounds]),
        regressions=tuple(_regressions(timeline)),
        asked=len(outcome) + unheard,
        answered=len(outcome) - failed,
        late=int((outcome == Outcome.LATE).sum()),
        failed=failed + unheard,
    )


def _trend(took: Sequence[float]) -> Trend | None:
    if len(took) < LEAST_ROUNDS or not any(took):
        return None
    quarter = len(took) // 4
    return Trend(median(took[:quarter]), median(took[-quarter:]), quarter)


def _regressions(timeline: Timeline) -> list[Regression]:
    try:
        found = list(ROUND_TIME_GROWS.look(chart_of_times(timeline)))
    except CannotSee:
        return []
    return [Regression(tuple(one.rounds), one.why) for one in found]
