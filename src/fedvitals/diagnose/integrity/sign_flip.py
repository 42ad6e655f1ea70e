"""Sign-flipped update: it points against the cohort.

Sees: a client that turns round from one participation to the next: its updates had gone one way, and the next two
point against the three before. Else the angle of an update to the others and to the same client's own past, over all
and in the last layers, and which way it pushes the output units. An honest client with few classes stands across the
others; it does not turn around.

Matters: averaged in, it undoes the work of as many honest clients as it outweighs.

Evidence: the cosine of the updates after to those before, how alike its last two before had been, and the rounds until
two updates in a row went with those before again; else the measures that carried it, beside those of the others and its
own before.

False alarms: who turns is accused only in a run in which hardly anybody has turned before (in less than one of a
hundred participations; in four, if its updates had been alike and are as clearly the opposite), on a model that is
well, if it had never turned itself, if the loss of the model on its rows is what it was (else: FL607) and if it does
not turn to where the others go; what is over after two participations is taken back. In the 830 trainings without a
fault on which this was set, 453 of them of made-up worlds, it found none. Where nobody turns, the threshold was taken
from the largest scores over all clients and rounds of runs without a fault; the rates measured on data never used for
that are on the page of the fault bench. It compares with the cohort and with the client's own past, so a client whose
data really changed looks guilty too.

Do: look for a minus sign (gradient ascent, old minus new); leave the client out, or take an aggregator that bears a
few such clients (trimmed-mean, median).

Papers: Li, Xu, Chen, Giannakis, Ling, "RSA: Byzantine-robust stochastic aggregation", AAAI 2019.
"""

from __future__ import annotations

from fedvitals.diagnose.evidence.accusing import SEE
from fedvitals.diagnose.evidence.breaks import mirrored
from fedvitals.diagnose.evidence.broken import against_its_own, break_rule
from fedvitals.vocabulary import Action, Severity

RULE = break_rule(
    "FL601",
    "sign-flipped update",
    __doc__ or "",
    kinds=("sign-flip",),
    sentence="sends updates that point the other way",
    severity=Severity.CRITICAL,
    next=(
        Action(SEE),
        Action("leave {clients} out", safe=False),
        Action('server.aggregator = "trimmed-mean"', safe=False),
    ),
    breaks=mirrored,
    worded=against_its_own,
)
