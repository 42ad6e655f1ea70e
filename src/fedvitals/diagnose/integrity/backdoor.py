"""Backdoor suspect: a client teaches a pattern beside its task.

Sees: an update that does what the others' do and something more: a higher first loss than its own before, a push
towards one output unit, a change of direction that stays; and several clients whose updates change in one and the same
direction in one round, in which they had not been alike before, and who still stand apart that way in their next three.

Matters: a backdoor leaves the accuracy alone and answers as its owner wants wherever the pattern is.

Evidence: the measures that carried it, beside those of the others and its own before. The rounds end with the last two
in a row in which it was nearer to what it was when it stood highest than to what it had been before.

False alarms: its threshold was taken from the largest scores over all clients and rounds of runs without a fault; the
rates measured on data never used for that are on the page of the fault bench. It compares with the cohort and with the
client's own past, so a client whose data really changed looks guilty too. Backdoors are the hardest kind: that of a
single client stays unseen under strong label skew, and a client that got new data of one class looks the same. Clients
that get new rows of one kind, or a new release of the training, in the same round are a group like any other.

Do: hold the client back and compare the models with and without it on inputs with small patches.

Papers: Bagdasaryan et al., "How to backdoor federated learning", AISTATS 2020; Gu, Dolan-Gavitt, Garg, "BadNets", 2017.
"""

from __future__ import annotations

from fedvitals.diagnose.evidence.accusing import SEE, scored_rule
from fedvitals.vocabulary import Action, Severity

RULE = scored_rule(
    "FL608",
    "backdoor suspect",
    __doc__ or "",
    kinds=("backdoor",),
    sentence="seems to teach one class beside its task",
    severity=Severity.CRITICAL,
    next=(
        Action(SEE),
        Action("leave {clients} out", safe=False),
    ),
)
