"""Data-quality suspect: a client's labels do not fit its rows.

Sees: a loss of the received model on the client's rows that is higher than the others' or than its own before and does
not come down as theirs does, with an update of no clear direction. Or one that undoes what the others do, where the
rest looks like inputs in another order: those would move other weights, and the update go across theirs.

Matters: wrong labels (a careless annotator, a broken join) cost accuracy for everybody, and memorising them costs more.

Evidence: the measures that carried it, beside those of the others and its own before. The rounds end with the last two
in a row in which it was nearer to what it was when it stood highest than to what it had been before.

False alarms: its threshold was taken from the largest scores over all clients and rounds of runs without a fault; the
rates measured on data never used for that are on the page of the fault bench. It compares with the cohort and with the
client's own past, so a client whose data really changed looks guilty too. Rows that are merely hard look alike when
they come suddenly.

Do: look at a sample of its labels; train once without it and compare.

Papers: Northcutt, Jiang, Chuang, "Confident learning", JAIR 2021.
"""

from __future__ import annotations

from fedvitals.diagnose.evidence.accusing import MISLABELLED, SEE, scored_rule
from fedvitals.vocabulary import Action, Severity

RULE = scored_rule(
    "FL507",
    "data-quality suspect",
    __doc__ or "",
    kinds=(MISLABELLED,),
    sentence="trains on labels that do not fit its rows",
    severity=Severity.WARNING,
    next=(
        Action(SEE),
        Action("look at a sample of the labels of {clients}"),
        Action("leave {clients} out", safe=False),
    ),
)
