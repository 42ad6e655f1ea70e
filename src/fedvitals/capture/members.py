"""Who takes part in a round, and what came of them: what the round's own record counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from fedvitals.vocabulary import Outcome, Participation

if TYPE_CHECKING:
    from fedvitals.capture.cohorts import CohortSession
    from fedvitals.capture.draft import Draft


class Counts(NamedTuple):
    used: int  # participations, as is the next
    failed: int
    clients: int


@dataclass(slots=True, eq=False)
class Members:
    """They come one by one, as cohorts, or as records of those who told of themselves from afar."""

    drafts: list[Draft] = field(default_factory=list)
    cohorts: list[CohortSession] = field(default_factory=list)
    far: list[Participation] = field(default_factory=list)
    asked: int = 0  # how many, where not each of them gets a session
    left_out: set[str] = field(default_factory=set)  # of the aggregate

    def leave_out(self, clients: Iterable[str], *, compared: bool) -> list[Participation]:
        """Gives the records that are others now: those from afar, and those written before. Where updates are
        `compared`, those with statistics are not among them: whoever compares them knows their cosines better."""
        self.left_out.update(clients)
        drafts = [one for one in self.drafts if self._was_used(one)]
        for draft in drafts:
            draft.outcome = Outcome.REJECTED
        again = [one.record() for one in drafts if one.written and not (compared and one.statistics)]
        judged = [place for place, one in enumerate(self.far) if self._was_used(one)]
        for place in judged:
            self.far[place] = self.far[place]._replace(
                outcome=Outcome.REJECTED.value, applied_version=None, staleness=None
            )
        return again + [self.far[place] for place in judged]

    def _was_used(self, one: Draft | Participation) -> bool:
        return one.client in self.left_out and one.outcome == Outcome.USED

    def counts(self, ticketed: Iterable[str]) -> Counts:
        """Who was sent a ticket and never answered was neither used nor failed."""
        outcomes: list[str] = [draft.outcome for draft in self.drafts] + [one.outcome for one in self.far]
        clients = {draft.client for draft in self.drafts}.union(ticketed)
        for cohort in self.cohorts:
            clients.update(cohort.ids)
            judged = zip(cohort.ids, cohort.outcomes, strict=False)  # there are none before it submits
            outcomes += [one for name, one in judged if name not in self.left_out] if self.left_out else cohort.outcomes
        failed = outcomes.count(Outcome.FAILED) + outcomes.count(Outcome.DROPPED)
        return Counts(outcomes.count(Outcome.USED), failed, max(len(clients), self.asked))
