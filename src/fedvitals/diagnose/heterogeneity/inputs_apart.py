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

from fedvitals.diagnose.evidence.accusing import SEE, scored_rule
from fedvitals.vocabulary import Action, Severity

RULE = scored_rule(
    "FL506",
    "inputs apart",
    __doc__ or "",
    kinds=("unnormalised-input", "swapped-features"),
    sentence="trains on inputs that are not like the others' (their scale or their order)",
    severity=Severity.WARNING,
    next=(
        Action(SEE),
        Action("check how {clients} scale and order features"),
        Action("leave {clients} out", safe=False),
    ),
)
