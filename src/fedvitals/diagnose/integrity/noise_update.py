"""Noise instead of an update: as large as the others, and about nothing.

Sees: what training always leaves in an update: the last bias follows the sums of the last matrix's rows, values that no
input reaches do not move, layers have their shares, and some neighbour points the same way. Noise has none of it.

Matters: it tires the model as much as its weight allows, and hides behind a usual norm.

Evidence: the measures that carried it, beside those of the others and its own before.

False alarms: its threshold was taken from the largest scores over all clients and rounds of runs without a fault; the
rates measured on data never used for that are on the page of the fault bench. It compares with the cohort and with the
client's own past, so a client whose data really changed looks guilty too.

Do: check the device and the transfer (a wrong decoding gives noise); leave the client out.

Papers: Blanchard et al., "Machine learning with adversaries" (Krum), NeurIPS 2017.
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
        ("gaussian-update",),
        "sends noise",
        severity=Severity.CRITICAL,
        next=(
            Action("fedvitals show RUN --client {clients}"),
            Action("leave {clients} out", safe=False),
            Action('server.aggregator = "multi-krum"', safe=False),
        ),
    )


RULE = WrittenRule(
    code="FL603",
    name="noise instead of an update",
    page=__doc__ or "",
    look=_look,
    needs=frozenset({Sight.SKETCHES}),
    explains=frozenset({"FL402", "FL403", "FL404", "FL406", "FL410", "FL501", "FL503", "FL504", "FL505"}),
)
