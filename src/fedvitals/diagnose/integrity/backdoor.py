"""Backdoor suspect: a client teaches a pattern beside its task.

Sees: an update that does what the others' do and something more: a higher first loss than its own before, a push
towards one output unit, a change of direction that stays.

Matters: a backdoor leaves the accuracy alone and answers as its owner wants wherever the pattern is.

Evidence: the measures that carried it, beside those of the others and its own before.

False alarms: its threshold was taken from the largest scores over all clients and rounds of runs without a fault; the
rates measured on data never used for that are on the page of the fault bench. It compares with the cohort and with the
client's own past, so a client whose data really changed looks guilty too. Backdoors are the hardest kind: under
strong label skew many stay unseen, and a client that got new data of one class looks the same.

Do: hold the client back and compare the models with and without it on inputs with small patches.

Papers: Bagdasaryan et al., "How to backdoor federated learning", AISTATS 2020; Gu, Dolan-Gavitt, Garg, "BadNets", 2017.
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
        ("backdoor",),
        "seems to teach one class beside its task",
        severity=Severity.CRITICAL,
        next=(
            Action("fedvitals show RUN --client {clients}"),
            Action("leave {clients} out", safe=False),
        ),
    )


RULE = WrittenRule(
    code="FL608",
    name="backdoor suspect",
    page=__doc__ or "",
    look=_look,
    needs=frozenset({Sight.SKETCHES}),
    explains=frozenset({"FL402", "FL403", "FL404", "FL406", "FL410", "FL501", "FL503", "FL504", "FL505"}),
)
