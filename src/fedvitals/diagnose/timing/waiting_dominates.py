"""Waiting dominates.

Sees: time in which somebody waited, where that is more than half: the phase `wait` of the rounds or of the clients;
and clients that work side by side and on average idle for more than half of the round until the slowest is done.

Matters: it is time paid for and not used.

Evidence: the seconds waited and out of how many, and who was waited for most.

False alarms: the word gives the bound, more than half. Idling for the slowest is reckoned from the clients' own times
and only told of (info): clients with far more rows than others cause it in healthy runs.

Do: find whom it waits for (FL102, FL201, FL301). Let rounds end without the last ones, or train asynchronously.

Papers: Huba et al., PAPAYA: Practical, Private, and Scalable Federated Learning (MLSys 2022).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.rule import CannotSee, WrittenRule
from fedvitals.diagnose.timing.spent import Spent, spent
from fedvitals.diagnose.writing import seconds, share, times, write
from fedvitals.store.table import Ints
from fedvitals.vocabulary import Action, Finding, Grade, Severity

MOST = 0.5  # what takes more than half dominates
TOGETHER = 0.1  # of a round: clients that all begin within it work side by side
LEAST_ROUNDS = 3
GO_ON = Action(
    "set server.over_select above 1 and a server.deadline_s, so that rounds go on without the last", safe=False
)


def _look(chart: Chart) -> Iterator[Finding]:
    worked = chart.shared(spent)
    lengths = {one.number: (one.end_ns - one.start_ns) / 1e9 for one in chart.rounds if one.end_ns is not None}
    if not worked.finished.any() and not lengths:
        raise CannotSee("neither rounds nor clients have times")
    yield from _of_rounds(chart, lengths)
    yield from _of_clients(chart, worked)
    yield from _idle(chart, worked)


def _of_rounds(chart: Chart, lengths: dict[int, float]) -> Iterator[Finding]:
    waits: dict[int, float] = {}
    for span in chart.spans:
        if span.name == "wait" and span.round in lengths and span.end_ns is not None:
            waits[span.round] = waits.get(span.round, 0.0) + (span.end_ns - span.start_ns) / 1e9
    total, waited = sum(lengths.values()), sum(waits.values())
    if len(waits) >= LEAST_ROUNDS and waited > MOST * total > 0:
        yield write(
            RULE,
            Severity.WARNING,
            f"the server waited for {seconds(waited)} of {seconds(total)}, {share(waited / total)} of its rounds' time",
            rounds=waits,
            evidence={"waited_s": waited, "of_s": total, "whose": "server"},
            next=["fedvitals show RUN", GO_ON],
        )


def _of_clients(chart: Chart, worked: Spent) -> Iterator[Finding]:
    rows = np.flatnonzero(worked.finished)
    total, waited = float(worked.total[rows].sum()), float(worked.wait[rows].sum())
    if len(chart.cohorts) >= LEAST_ROUNDS and waited > MOST * total > 0:
        yield write(
            RULE,
            Severity.WARNING,
            f"clients waited for {seconds(waited)} of their {seconds(total)}, {share(waited / total)}",
            rounds=np.unique(chart.participations.round[rows]).tolist(),
            evidence={"waited_s": waited, "of_s": total, "whose": "clients"},
            next=["fedvitals show RUN", GO_ON],
        )


def _idle(chart: Chart, worked: Spent) -> Iterator[Finding]:
    """Until the slowest is done, the others do nothing."""
    idle, most, rounds, slowest = 0.0, 0.0, [], []
    for number, rows in chart.cohorts:
        own = rows[worked.finished[rows] & ~chart.participations.attributed[rows]]
        if len(own) < 2 or not _side_by_side(chart, own):
            continue
        took = worked.total[own]
        idle += float((took.max() - took).mean())
        most += float(took.max())
        rounds.append(number)
        slowest.append(int(chart.participations.client[own[int(np.argmax(took))]]))
    if len(rounds) < LEAST_ROUNDS or idle <= MOST * most:
        return
    worst = int(np.bincount(slowest).argmax())
    yield write(
        RULE,
        Severity.INFO,
        f"clients that work side by side idle for {share(idle / most)} of a round on average, until the slowest is "
        f"done; that is most often client {chart.clients[worst]} "
        f"({slowest.count(worst)} of {times(len(rounds), 'round')})",
        grade=Grade.SUSPECT,
        rounds=rounds,
        evidence={"idle": idle / most, "slowest": chart.clients[worst]},
        next=["fedvitals show RUN", GO_ON],
    )


def _side_by_side(chart: Chart, rows: Ints) -> bool:
    table = chart.participations
    start, end = table.start_s[rows], table.end_s[rows]
    return float(np.ptp(start)) <= TOGETHER * float(end.max() - start.min())


RULE = WrittenRule(code="FL202", name="waiting dominates", page=__doc__ or "", look=_look)
