"""Scaled update: far larger than its training explains.

Sees: the norm of an update for its number of steps and its loss, beside the others and its own past, while its
direction and its losses stay as they were.

Matters: an average follows the longest vector. Scaling is how a single client outvotes all others, by malice or by
sending a sum where a mean was asked for.

Evidence: the measures that carried it, beside those of the others and its own before.

False alarms: its threshold was taken from the largest scores over all clients and rounds of runs without a fault; the
rates measured on data never used for that are on the page of the fault bench. It compares with the cohort and with the
client's own past, so a client whose data really changed looks guilty too.

Do: check whether it sums over steps or weighs by its rows itself; bound the norm of updates, or take a robust
aggregator.

Papers: Bagdasaryan et al., "How to backdoor federated learning" (model replacement), AISTATS 2020.
"""

from __future__ import annotations

from fedvitals.diagnose.evidence.accusing import SEE, scored_rule
from fedvitals.vocabulary import Action, Severity

RULE = scored_rule(
    "FL602",
    "scaled update",
    __doc__ or "",
    kinds=("scaled-update",),
    sentence="sends updates too large for its training",
    severity=Severity.CRITICAL,
    next=(
        Action(SEE),
        Action("leave {clients} out", safe=False),
        Action('server.aggregator = "median"', safe=False),
    ),
)
