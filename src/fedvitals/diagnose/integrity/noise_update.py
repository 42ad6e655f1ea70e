"""Noise instead of an update: as large as the others, and about nothing.

Sees: what training always leaves in an update: the last bias follows the sums of the last matrix's rows, values that no
input reaches do not move, layers have their shares, and some neighbour points the same way. Noise has none of it.

Matters: it tires the model as much as its weight allows, and hides behind a usual norm.

Evidence: the measures that carried it, beside those of the others and its own before. The rounds end with the last two
in a row in which it was nearer to what it was when it stood highest than to what it had been before.

False alarms: its threshold was taken from the largest scores over all clients and rounds of runs without a fault; the
rates measured on data never used for that are on the page of the fault bench. It compares with the cohort and with the
client's own past, so a client whose data really changed looks guilty too.

Do: check the device and the transfer (a wrong decoding gives noise); leave the client out.

Papers: Blanchard et al., "Machine learning with adversaries" (Krum), NeurIPS 2017.
"""

from __future__ import annotations

from fedvitals.diagnose.evidence.accusing import SEE, scored_rule
from fedvitals.vocabulary import Action, Severity

RULE = scored_rule(
    "FL603",
    "noise instead of an update",
    __doc__ or "",
    kinds=("gaussian-update",),
    sentence="sends noise",
    severity=Severity.CRITICAL,
    next=(
        Action(SEE),
        Action("leave {clients} out", safe=False),
        Action('server.aggregator = "multi-krum"', safe=False),
    ),
)
