"""Loss on another scale: a client sums its losses where the others average them.

Sees: a client whose losses are the others' times one number, from its first participation on, where that number is its
batch size, its steps or its rows. Where its updates and first gradients are as long as the others' and go their way, it
only reports a sum; where its first gradients are as much longer in every layer, it trains by one.

Matters: a mean over clients of such losses means nothing, and who compares losses takes the client for one whose labels
are wrong. Who trains by a sum trains at so many times the rate.

Evidence: the number, what was summed over, and how many these are.

False alarms: none were seen. The number must be four and more, the same within a third in the client's first three
participations, as near to what was summed over, and last; while the losses of nineteen of twenty others in these rounds
lie within a third of the usual. So it is only seen where the run begins with a new model, which is equally bad for all
rows. Inputs of another scale (FL506) lengthen the gradients of weights and not those of the last bias.

Do: average where the loss is computed (`reduction="mean"`), or divide what is reported by what it was summed over.

Papers: none.
"""

from __future__ import annotations

from collections.abc import Iterator

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.evidence.accusing import SCORED_CODES
from fedvitals.diagnose.evidence.loss_scale import Scale, loss_scales
from fedvitals.diagnose.rule import Sight, WrittenRule
from fedvitals.diagnose.words import listed
from fedvitals.diagnose.writing import factor, see_client, short, write
from fedvitals.vocabulary import Action, Finding, Grade, Severity

OVER = {"batch": "the rows of its batches", "steps": "its steps", "rows": "its rows"}


def _look(chart: Chart) -> Iterator[Finding]:
    scales = chart.shared(loss_scales)
    for trains in (True, False):
        found = sorted((one for one in scales if one.trains is trains), key=lambda one: -one.factor)
        if found:
            yield _finding(chart, found, trains)


def _finding(chart: Chart, found: list[Scale], trains: bool) -> Finding:
    names, top = chart.names([one.client for one in found]), found[0]
    also = f"; the same of {listed(names[1:])}" if len(names) > 1 else ""
    does = "trains by a loss on another scale" if trains else "reports its loss on another scale"
    rest = (
        "its gradients are as much longer, so that it trains at so many times the others' rate"
        if trains
        else "its updates are as long as theirs and point the same way, so that only the number is wrong"
    )
    mend = "average the loss over the batch, reduction='mean'" if trains else "divide the loss that it reports"
    return write(
        RULE,
        Severity.WARNING if trains else Severity.INFO,
        f"client {names[0]} {does}: from its first participation on it is {factor(top.factor)} the others', and "
        f"{OVER[top.by]} are {top.count:.0f}: a sum where they have a mean; {rest}{also}",
        grade=Grade.ACCUSED,
        rounds=[number for one in found for number in chart.participations.round[chart.histories[one.client]]],
        clients=names,
        evidence={
            name: {"factor": short(one.factor), "summed_over": one.by, "count": short(one.count)}
            for name, one in zip(names, found, strict=True)
        },
        next=(Action(see_client(names[0])), Action(f"{mend}, at {listed(names)}", safe=not trains)),
    )


RULE = WrittenRule(
    code="FL509",
    name="loss on another scale",
    page=__doc__ or "",
    look=_look,
    needs=frozenset({Sight.LOSSES, Sight.UPDATES}),
    explains=SCORED_CODES | {"FL403", "FL407", "FL409", "FL412", "FL413", "FL414", "FL501"},
)
