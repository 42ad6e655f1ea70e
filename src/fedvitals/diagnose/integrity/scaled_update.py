"""Scaled update: far larger than its training explains.

Sees: a client whose updates become at least twice as long from one participation to the next, and stay so, beside the
others', while their direction, their layer profile and its losses stay as they were. Beside one who did, others who did
by about the same factor in the same round. Else the norm of an update for its number of steps and its loss, beside the
others and its own past, while its direction and its losses stay as they were.

Matters: an average follows the longest vector. Scaling is how a single client outvotes all others, by malice or by
sending a sum where a mean was asked for.

Evidence: by how many times they are longer, its own largest change before, and the rounds until two updates in a row
were as long as before again; else the measures that carried it, beside those of the others and its own before.

False alarms: the leap must be five robust deviations of the changes that all clients showed in earlier rounds, of whom
less than one in fifty had changed by half as much (one in 25 where the client itself was far steadier), and twice the
client's own largest; the model must be well, and the client must have something left to learn; what is over after two
participations is taken back. In the 830 trainings without a fault on which this was set, 453 of them of made-up worlds,
it found none. A client whose learning rate was raised looks the same. Where nothing leaps, the threshold was taken from
the largest scores over all clients and rounds of runs without a fault; the rates measured on data never used for that
are on the page of the fault bench. It compares with the cohort and with the client's own past, so a client whose data
really changed looks guilty too.

Do: check whether it sums over steps or weighs by its rows itself, and for a missing optimizer.zero_grad(), which is
FL414 only where the losses tell it apart; bound the norm of updates, or take a robust aggregator.

Papers: Bagdasaryan et al., "How to backdoor federated learning" (model replacement), AISTATS 2020.
"""

from __future__ import annotations

from fedvitals.diagnose.evidence.accusing import SEE
from fedvitals.diagnose.evidence.breaks import lengthened
from fedvitals.diagnose.evidence.broken import break_rule, times_its_own
from fedvitals.vocabulary import Action, Severity

RULE = break_rule(
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
    breaks=lengthened,
    worded=times_its_own,
)
