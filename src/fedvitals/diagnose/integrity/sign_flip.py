"""Sign-flipped update: it points against the cohort.

Sees: the angle of an update to the others and to the same client's own past, over all and in the last layers, and which
way it pushes the output units. An honest client with few classes stands across the others; it does not turn around.

Matters: averaged in, it undoes the work of as many honest clients as it outweighs.

Evidence: the measures that carried it, beside those of the others and its own before.

False alarms: its threshold was taken from the largest scores over all clients and rounds of runs without a fault; the
rates measured on data never used for that are on the page of the fault bench. It compares with the cohort and with the
client's own past, so a client whose data really changed looks guilty too.

Do: look for a minus sign (gradient ascent, old minus new); leave the client out, or take an aggregator that bears a
few such clients (trimmed-mean, median).

Papers: Li, Xu, Chen, Giannakis, Ling, "RSA: Byzantine-robust stochastic aggregation", AAAI 2019.
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
        ("sign-flip",),
        "sends updates that point the other way",
        severity=Severity.CRITICAL,
        next=(
            Action("fedvitals show RUN --client {clients}"),
            Action("leave {clients} out", safe=False),
            Action('server.aggregator = "trimmed-mean"', safe=False),
        ),
    )


RULE = WrittenRule(
    code="FL601",
    name="sign-flipped update",
    page=__doc__ or "",
    look=_look,
    needs=frozenset({Sight.SKETCHES}),
    explains=frozenset({"FL402", "FL403", "FL404", "FL406", "FL410", "FL501", "FL503", "FL504", "FL505"}),
)
