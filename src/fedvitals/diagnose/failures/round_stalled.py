"""Round stalled.

Sees: a round that began, has not ended and has gone on far longer than the run's own rounds take, whether the run
still waits or was cut off in it; and rounds that did end but took far beyond the spread of the others.

Matters: a stall looks like work: no error, no exit code. The longer nobody sees it, the more time is lost.

Evidence: how long the round has lasted by the last record of the run, what rounds of this run usually take, how many
of the clients asked were heard of, and who took longest.

False alarms: a round is called long when its time is beyond the run's own robust spread at a rate of one run in a
hundred, and at least ten times the usual and a second longer. The first round is not judged: libraries load in it.
One long round that ended is only worth knowing (info); a warning needs them to have taken most of the run's time. Where
all clients are trained on one machine, who was waited for is told, but held responsible only where it was so in several
long rounds: a machine that sleeps stops whoever is at work.

Do: look at the logs of who was waited for. Give rounds a deadline.

Papers: none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.failures.progress import heard, heard_in_words, last_ns
from fedvitals.diagnose.robust import median, spread, threshold
from fedvitals.diagnose.rule import CannotSee, WrittenRule
from fedvitals.diagnose.words import ranges
from fedvitals.diagnose.writing import seconds, write
from fedvitals.store.table import Floats
from fedvitals.vocabulary import Action, Finding, Grade, Round, Severity, Status

RATE = 0.01
FAR = 10.0  # times the usual: below that a round is slow, not stalled
LEAST_S = 1.0  # nobody calls less than a second a stall
LEAST_SPREAD = 0.1  # of the logarithm: rounds that differ by less than a tenth are equal
LEAST_ROUNDS = 3
LEAST_TIMES = 2  # long rounds of one client: once is an event
DEADLINE = Action("set server.deadline_s, so that a round goes on without who does not answer", safe=False)


def _look(chart: Chart) -> Iterator[Finding]:
    if not chart.rounds:
        raise CannotSee("the run has no rounds")
    ended = [one for one in chart.rounds if one.end_ns is not None]
    lengths = np.array([_length(one) for one in ended])
    for one in chart.rounds:
        if one.end_ns is None:
            yield from _open(chart, one, lengths)
    yield from _long(chart, ended, lengths)


def _open(chart: Chart, one: Round, lengths: Floats) -> Iterator[Finding]:
    """A later round or the run's orderly end say that this one is over. Where the process merely ended in it, it is no
    stall (FL109)."""
    if chart.run.status is Status.FINISHED or one.number != chart.rounds[-1].number:
        return
    elapsed = (last_ns(chart) - one.start_ns) / 1e9
    if not elapsed > _limit(lengths[1:]):
        return
    gone = chart.run.status in (Status.CUT_OFF, Status.FAILED)
    how = f"the run {'was cut off' if chart.run.status is Status.CUT_OFF else 'failed'}" if gone else "nothing ended it"
    yield write(
        RULE,
        Severity.CRITICAL if gone else Severity.WARNING,
        f"round {one.number} began and {how} {seconds(elapsed)} into it, {heard_in_words(chart, one)}; a round of this "
        f"run takes {seconds(median(lengths))}",
        grade=Grade.CERTAIN if gone else Grade.ACCUSED,
        rounds=[one.number],
        evidence={
            "elapsed_s": elapsed,
            "usual_s": median(lengths),
            "selected": one.selected,
            "heard": heard(chart, one),
        },
        next=["fedvitals show RUN", DEADLINE],
    )


def _long(chart: Chart, ended: list[Round], lengths: Floats) -> Iterator[Finding]:
    limit, usual = _limit(lengths[1:]), median(lengths[1:])
    far = np.flatnonzero(lengths > limit)
    far = far[far > 0]
    if not len(far):
        return
    numbers = [ended[int(place)].number for place in far]
    dominates = float(lengths[far].sum()) > float(lengths.sum()) / 2
    who, took = _slowest(chart, numbers)
    again = sum(_slowest(chart, [number])[0] == who for number in numbers) >= LEAST_TIMES
    answers = again or "executor" not in chart.run.environment
    waited = (
        f"; client {who} took {seconds(took)} of it" if who is not None and took > float(lengths[far].max()) / 2 else ""
    )
    yield write(
        RULE,
        Severity.WARNING if dominates else Severity.INFO,
        f"round{'s' * (len(numbers) > 1)} {ranges(numbers)} took up to {seconds(float(lengths[far].max()))}, "
        f"the others {seconds(usual)}{waited}",
        grade=Grade.ACCUSED if dominates else Grade.SUSPECT,
        rounds=numbers,
        clients=[who] if who is not None and waited and answers else [],
        evidence={"longest_s": float(lengths[far].max()), "usual_s": usual, "limit_s": limit},
        next=[f"fedvitals show RUN --round {numbers[0]}", DEADLINE],
    )


def _limit(lengths: Floats) -> float:
    """Beyond this a round of this run has stalled."""
    lengths = lengths[lengths > 0]
    if len(lengths) < LEAST_ROUNDS:
        return math.inf
    logs = np.log(lengths)
    usual = median(logs)
    far = usual + threshold(len(lengths), RATE) * spread(logs, floor=LEAST_SPREAD)
    return max(math.exp(far), FAR * math.exp(usual), math.exp(usual) + LEAST_S)


def _slowest(chart: Chart, numbers: list[int]) -> tuple[str | None, float]:
    table = chart.participations
    rows = np.flatnonzero(np.isin(table.round, numbers))
    took = table.end_s[rows] - table.start_s[rows]
    if not len(rows) or not np.isfinite(took).any():
        return None, 0.0
    worst = int(np.nanargmax(took))
    return chart.clients[int(table.client[rows[worst]])], float(took[worst])


def _length(one: Round) -> float:
    return ((one.end_ns or one.start_ns) - one.start_ns) / 1e9


RULE = WrittenRule(
    code="FL104", name="round stalled", page=__doc__ or "", look=_look, explains=frozenset({"FL109", "FL202", "FL205"})
)
