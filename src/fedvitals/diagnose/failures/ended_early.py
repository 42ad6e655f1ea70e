"""Run ended early.

Sees: a run that an exception ended, and one whose process is gone without having ended it.

Matters: the rounds that were still to come are missing, and the last model may not be kept anywhere. From the records
alone such a run looks like a shorter one in which all is well.

Evidence: the exception, who raised it and at which line, in which round and how far into it; of a process that is gone,
the last that was heard of it.

False alarms: who stops a run on purpose is told that it was stopped. Ctrl-C says so, and is only worth knowing; a
process that was killed cannot say whether that was meant.

Do: mend what raised. Of a process that is gone, look at what ended it: the system's log (a kernel out of memory says so
there), the scheduler's time limit, a restart of the machine.

Papers: none.
"""

from __future__ import annotations

from collections.abc import Iterator

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.failures.client_raised import MOST_MESSAGE, MOST_TRACEBACK, raised_at
from fedvitals.diagnose.failures.progress import heard_in_words, last_ns
from fedvitals.diagnose.rule import WrittenRule
from fedvitals.diagnose.writing import seconds, see_client, write
from fedvitals.vocabulary import Action, Failure, Finding, Severity, Status

BY_HAND = "KeyboardInterrupt"


def _look(chart: Chart) -> Iterator[Finding]:
    if chart.run.status is Status.CUT_OFF:
        yield _cut_off(chart)
    elif chart.run.status is Status.FAILED:
        yield _failed(chart)


def _cut_off(chart: Chart) -> Finding:
    return write(
        RULE,
        Severity.CRITICAL,
        f"the process that recorded this run was gone {_when(chart)}, without having ended it",
        rounds=[one.number for one in chart.rounds[-1:]],
        evidence={"last_heard_s": last_ns(chart) / 1e9, "rounds_ended": _ended(chart)},
        next=["look at what ended the process: the system's log (out of memory?), a time limit, a restart, a kill"],
    )


def _failed(chart: Chart) -> Finding:
    error = str(chart.run.health.get("error") or "an exception")[:MOST_MESSAGE]
    failure = _its_failure(chart, error)
    client = failure.client if failure else None
    place = raised_at(failure.traceback or "") if failure else ""
    whose = f" of client {client}" if client is not None else ""
    by_hand = error.startswith(BY_HAND)
    by = "hand" if by_hand else f"an exception{whose}{f' at {place}' if place else ''}"
    return write(
        RULE,
        Severity.INFO if by_hand else Severity.CRITICAL,
        f"the run was ended {_when(chart)} by {by}: {error.rstrip(': ')}",
        rounds=[one.number for one in chart.rounds[-1:]],
        clients=[client] if client is not None else [],
        evidence={
            "error": error,
            "at": place,
            "rounds_ended": _ended(chart),
            "traceback": (failure.traceback or "")[-MOST_TRACEBACK:] if failure else "",
        },
        next=_actions(client),
    )


def _actions(client: str | None) -> tuple[Action | str, ...]:
    if client is None:
        return ("fedvitals show RUN",)
    return (
        see_client(client),
        Action(
            "catch what a client raises outside of `with rnd.client(...)`: the round goes on without it", safe=False
        ),
    )


def _its_failure(chart: Chart, error: str) -> Failure | None:
    """The failure that was recorded of the exception that ended the run; the last such."""
    alike = (one for one in reversed(chart.failures) if f"{one.kind}: {one.message}"[:MOST_MESSAGE] == error)
    return next(alike, None)


def _when(chart: Chart) -> str:
    """In which round and how far into it, or after which."""
    if not chart.rounds:
        return "before its first round"
    last = chart.rounds[-1]
    if last.end_ns is None:
        into = seconds((last_ns(chart) - last.start_ns) / 1e9)
        return f"{into} into round {last.number} ({heard_in_words(chart, last)})"
    return f"in round {last.number}" if last.error is not None else f"after round {last.number}"


def _ended(chart: Chart) -> int:
    return sum(one.end_ns is not None and one.error is None for one in chart.rounds)


RULE = WrittenRule(
    code="FL109",
    name="run ended early",
    page=__doc__ or "",
    look=_look,
    explains=frozenset({"FL101", "FL102", "FL107", "FL302"}),
)
