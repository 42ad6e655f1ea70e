"""Inputs apart: a client's features are not what the others' are.

Sees: the norms, the layer profile and the losses that inputs of another scale or in another order leave, beside the
others and its own past.

Matters: pixels of 0 to 255 among pixels of 0 to 1, or columns in another order, make one client's update wrong for all.

Evidence: the measures that carried it, beside those of the others and its own before.

False alarms: its threshold was taken from the largest scores over all clients and rounds of runs without a fault; the
rates measured on data never used for that are on the page of the fault bench. It compares with the cohort and with the
client's own past, so a client whose data really changed looks guilty too.

Do: compare means and spreads of the features with another client; look at the order of columns and at the vocabulary.

Papers: none.
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
        ("unnormalised-input", "swapped-features"),
        "trains on inputs that are not like the others' (their scale or their order)",
        severity=Severity.WARNING,
        next=(
            Action("fedvitals show RUN --client {clients}"),
            Action("check how {clients} scale and order features"),
            Action("leave {clients} out", safe=False),
        ),
    )


RULE = WrittenRule(
    code="FL506",
    name="inputs apart",
    page=__doc__ or "",
    look=_look,
    needs=frozenset({Sight.SKETCHES}),
    explains=frozenset({"FL402", "FL403", "FL404", "FL406", "FL410", "FL501", "FL503", "FL504", "FL505"}),
)
