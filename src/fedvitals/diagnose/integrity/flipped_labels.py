"""Flipped labels: a client teaches classes for one another.

Sees: a client that turns round from one participation to the next (see FL601) while the received model's loss on its
rows leaps: of two classes, taken for one another, the gradient is the mirrored one. Else the loss of the received model
on the client's rows (its first steps), how far and where its update goes, and how it pushes the output units, beside
the others and against its own past. No data is needed.

Matters: the model learns to confuse just those classes, and its mean accuracy hardly shows it.

Evidence: the measures that carried it, beside those of the others and its own before. The rounds end with the last two
in a row in which it was nearer to what it was when it stood highest than to what it had been before.

False alarms: its threshold was taken from the largest scores over all clients and rounds of runs without a fault; the
rates measured on data never used for that are on the page of the fault bench. It compares with the cohort and with the
client's own past, so a client whose data really changed looks guilty too. Flips of few rows, from the first round on,
among clients with few classes each, can hide.

Do: look at the client's class list and label file; compare the accuracy of each class with and without it.

Papers: Tolpegin et al., "Data poisoning attacks against federated learning systems", ESORICS 2020.
"""

from __future__ import annotations

from fedvitals.diagnose.evidence.accusing import SEE
from fedvitals.diagnose.evidence.breaks import relabelled
from fedvitals.diagnose.evidence.broken import against_its_own, break_rule
from fedvitals.vocabulary import Action, Severity

RULE = break_rule(
    "FL607",
    "flipped labels",
    __doc__ or "",
    kinds=("label-flip",),
    sentence="seems to train on labels that are taken for one another",
    severity=Severity.CRITICAL,
    next=(
        Action(SEE),
        Action("leave {clients} out", safe=False),
    ),
    breaks=relabelled,
    worded=against_its_own,
)
