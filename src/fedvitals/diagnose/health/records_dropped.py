"""Records dropped.

Sees: records that fedvitals could not keep (the queue or the disk was full, or the run had reached its cap), and places
where its own code failed.

Matters: what is missing from the record is missing from every finding: a rule that sees nothing wrong may not have
seen.

Evidence: how many records of which kind, and where recording failed how often.

False alarms: none; they are counted one by one. The count is written when a run ends: of a run that goes on only the
recorder's own warnings are known.

Do: give it more room (`queue_mb`, `max_mb`, a faster disk), or keep less (`keep_updates`, `steps`, `sketches`).

Papers: none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.rule import CannotSee, WrittenRule
from fedvitals.diagnose.writing import times, write
from fedvitals.vocabulary import Finding, Severity

ELSEWHERE = ("bad telemetry",)  # the sender's fault, and FL302's
STOPPED = "recording has stopped"  # how the writer says so


def _look(chart: Chart) -> Iterator[Finding]:
    health = chart.run.health
    dropped, troubles = counts(health.get("dropped")), counts(health.get("troubles"))
    troubles = {where: count for where, count in troubles.items() if where not in ELSEWHERE}
    stopped = [one for one in chart.logs if one.logger == "fedvitals" and STOPPED in one.message]
    if not health and not stopped:
        raise CannotSee("the recorder tells of its health when the run ends")
    if dropped:
        listed = ", ".join(f"{count:,} {kind}" for kind, count in dropped.items())
        yield write(
            RULE,
            Severity.WARNING,
            f"{times(sum(dropped.values()), 'record')} could not be kept: {listed}",
            evidence={"dropped": dropped},
            next=["raise queue_mb or max_mb, or keep less: steps = 'off', keep_updates = false"],
        )
    if stopped:
        yield write(
            RULE,
            Severity.WARNING,
            stopped[0].message[:300],
            evidence={"at_s": stopped[0].at_ns / 1e9},
            next=["make room on the disk, or set FEDVITALS_DIR to another place"],
        )
    if troubles:
        places = ", ".join(f"{where} ({times(count)})" for where, count in troubles.items())
        yield write(
            RULE,
            Severity.WARNING,
            f"recording failed in {places}; the training went on, and what belongs there is missing",
            evidence={"troubles": troubles},
            next=["fedvitals show RUN"],
        )


def counts(value: Any) -> dict[str, int]:
    """The counts above 0 of what stands in a run's health, whatever that is."""
    if not isinstance(value, Mapping):
        return {}
    return {str(name): count for name, count in value.items() if type(count) is int and count > 0}


RULE = WrittenRule(code="FL901", name="records dropped", page=__doc__ or "", look=_look)
