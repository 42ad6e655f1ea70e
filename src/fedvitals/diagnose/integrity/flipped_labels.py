"""Flipped labels: a client teaches classes for one another.

Sees: the loss of the received model on the client's rows (its first steps), how far and where its update goes, and how
it pushes the output units, beside the others and against its own past. No data is needed.

Matters: the model learns to confuse just those classes, and its mean accuracy hardly shows it.

Evidence: the measures that carried it, beside those of the others and its own before.

False alarms: its threshold was taken from the largest scores over all clients and rounds of runs without a fault; the
rates measured on data never used for that are on the page of the fault bench. It compares with the cohort and with the
client's own past, so a client whose data really changed looks guilty too. Flips of few rows, from the first round on,
among clients with few classes each, can hide.

Do: look at the client's class list and label file; compare the accuracy of each class with and without it.

Papers: Tolpegin et al., "Data poisoning attacks against federated learning systems", ESORICS 2020.
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
        ("label-flip",),
        "seems to train on labels that are taken for one another",
        severity=Severity.CRITICAL,
        next=(
            Action("fedvitals show RUN --client {clients}"),
            Action("leave {clients} out", safe=False),
        ),
    )


RULE = WrittenRule(
    code="FL607",
    name="flipped labels",
    page=__doc__ or "",
    look=_look,
    needs=frozenset({Sight.SKETCHES}),
    explains=frozenset({"FL402", "FL403", "FL404", "FL406", "FL410", "FL501", "FL503", "FL504", "FL505"}),
)
