"""Every client fails.

Sees: rounds that ended and in which no update of any client was used, although clients were asked.

Matters: the round "completes", the exit code is 0, and the model is the one from before. Frameworks go on like that for
as many rounds as they are told to.

Evidence: which rounds, how many clients were asked, and the commonest failure among them.

False alarms: a round in which updates are deliberately not applied (a dry run, a rollback by dropping everybody) looks
the same.

Do: mend the commonest failure first: what strikes everybody lies in the code or the configuration that all share.

Papers: none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.failures.kinds import cause
from fedvitals.diagnose.rule import CannotSee, WrittenRule
from fedvitals.diagnose.words import ranges
from fedvitals.diagnose.writing import times, write
from fedvitals.vocabulary import Failure, Finding, Round, Severity

MOST_MESSAGE = 300
FOLLOWS = frozenset({"FL103", "FL105", "FL109", "FL404", "FL406"})


def _look(chart: Chart) -> Iterator[Finding]:
    told = [one for one in chart.rounds if one.end_ns is not None and one.selected > 0]
    if not told:
        raise CannotSee("the run has no round that ended and says how many clients were asked")
    empty = [one for one in told if one.used == 0]
    if empty:
        yield _finding(chart, empty, len(told))


def _finding(chart: Chart, empty: list[Round], of: int) -> Finding:
    numbers = {one.number for one in empty}
    asked = max(one.selected for one in empty)
    failure, count = _commonest([one for one in chart.failures if one.round in numbers and one.client is not None])
    reason = (
        f"; mostly ({times(count)}) {failure.kind} in {failure.stage}: {failure.message[:MOST_MESSAGE]}"
        if failure
        else ""
    )
    all_of_them = len(empty) == of
    return write(
        RULE,
        Severity.CRITICAL,
        f"no update of the {asked} clients asked was used in {'any of ' if all_of_them else ''}"
        f"{times(len(empty), 'round')} ({ranges(sorted(numbers))}): the model stayed as it was{reason}",
        rounds=numbers,
        evidence={
            "rounds": len(empty),
            "of": of,
            "asked": asked,
            "kind": failure.kind if failure else None,
            "message": failure.message if failure else None,
        },
        next=["fedvitals show RUN"],
    )


def _commonest(failures: list[Failure]) -> tuple[Failure | None, int]:
    if not failures:
        return None, 0
    found, count = Counter(map(cause, failures)).most_common(1)[0]
    return next(one for one in failures if cause(one) == found), count


RULE = WrittenRule(code="FL106", name="every client fails", page=__doc__ or "", look=_look, explains=FOLLOWS)
