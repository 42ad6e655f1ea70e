"""Scaled update: far larger than its training explains.

Sees: the norm of an update for its number of steps and its loss, beside the others and its own past, while its
direction and its losses stay as they were.

Matters: an average follows the longest vector. Scaling is how a single client outvotes all others, by malice or by
sending a sum where a mean was asked for.

Evidence: the measures that carried it, beside those of the others and its own before.

False alarms: its threshold was taken from the largest scores over all clients and rounds of runs without a fault; the
rates measured on data never used for that are on the page of the fault bench. It compares with the cohort and with the
client's own past, so a client whose data really changed looks guilty too.

Do: check whether it sums over steps or weighs by its rows itself; bound the norm of updates, or take a robust
aggregator.

Papers: Bagdasaryan et al., "How to backdoor federated learning" (model replacement), AISTATS 2020.
"""

from __future__ import annotations

from collections.abc import Iterator

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.evidence.accusing import accusations
from fedvitals.diagnose.rule import Sight, WrittenRule
from fedvitals.vocabulary import Action, Finding, Severity


def _look(chart: Chart) -> Iterator[Finding]:
    return accusations(
        chart,
        RULE,
        ("scaled-update",),
        "sends updates too large for its training",
        severity=Severity.CRITICAL,
        next=(
            Action("fedvitals show RUN --client {clients}"),
            Action("leave {clients} out", safe=False),
            Action('server.aggregator = "median"', safe=False),
        ),
    )


RULE = WrittenRule(
    code="FL602",
    name="scaled update",
    page=__doc__ or "",
    look=_look,
    needs=frozenset({Sight.SKETCHES}),
    explains=frozenset({"FL402", "FL403", "FL404", "FL406", "FL410", "FL501", "FL503", "FL504", "FL505", "FL303"}),
)
