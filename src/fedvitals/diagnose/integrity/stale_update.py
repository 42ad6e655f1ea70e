"""Stale update: a client sends an earlier update of its own again.

Sees: a sketch and norms that equal, to the last bit, those of an earlier participation of the same client. Training is
never that repeatable: another model was received, and another order of rows was drawn. A cohort of which more than half
repeats what was sent before is not judged: then it is what they were given, not a client.

Matters: an old update pulls the model back to where it was then, with the weight of a fresh one.

Evidence: the rounds, and for each the round whose update was sent again.

False alarms: none were seen in clean runs but of made-up worlds: a client with four rows that a linear model gets
wholly wrong has one and the same gradient round after round. So whose updates differ from the last ones by no more than
sketches are rounded by, in a quarter of its participations, is not judged.

Do: look for a cache between training and sending; for a failed training whose last result was sent instead.

Papers: none.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.evidence.accusing import SCORED_CODES
from fedvitals.diagnose.evidence.measures import unit
from fedvitals.diagnose.evidence.repeats import repeated
from fedvitals.diagnose.rule import Sight, WrittenRule
from fedvitals.diagnose.words import ranges
from fedvitals.diagnose.writing import see_client, times, write
from fedvitals.store.table import Bools
from fedvitals.vocabulary import Action, Finding, Severity

MOST = 0.5  # of a cohort
MANY = 0.25  # of a client's updates
NO_DIFFERENCE = 1e-6  # of an update from the client's last one, 1 - cosine: what sketches are rounded by
SMALLEST = 3  # clients in a cohort, of which one is not most


def _look(chart: Chart) -> Iterator[Finding]:
    table, first = chart.participations, chart.shared(repeated)
    earlier = table.round[first] < table.round
    again = earlier & (table.client[first] == table.client) & ~_all_repeat(chart, earlier)
    for client in np.unique(table.client[again]):
        rows = np.flatnonzero(again & (table.client == client))
        if _nearly_the_same(chart, int(client)):
            continue
        name = chart.clients[int(client)]
        sources = sorted({int(one) for one in table.round[first[rows]]})
        yield write(
            RULE,
            Severity.WARNING,
            f"client {name} sent an update again {times(len(rows))}, equal to the last bit to that of round "
            f"{ranges(sources)}",
            rounds=table.round[rows],
            clients=(name,),
            evidence={"participations": len(rows), "sent_first_in": sources},
            next=(
                see_client(name),
                Action(f"leave client {name} out until it trains again", safe=False),
            ),
        )


def _nearly_the_same(chart: Chart, client: int) -> bool:
    """Whether many of its updates differ from its last one by next to nothing: then two that do not differ tell
    nothing."""
    updates, own = chart.updates, chart.histories[client]
    if updates is None or updates.sketches is None:
        return False
    own = own[updates.present[own]]
    sketches = unit(updates.sketches[own].astype(np.float64))
    apart = 1 - (sketches[1:] * sketches[:-1]).sum(axis=1)
    different = apart[(updates.sketches[own][1:] != updates.sketches[own][:-1]).any(axis=1)]
    return len(different) > 0 and float(np.quantile(different, MANY)) < NO_DIFFERENCE


def _all_repeat(chart: Chart, earlier: Bools) -> Bools:
    """Participations in rounds most of which is what somebody had sent before."""
    found = np.zeros(len(earlier), bool)
    for _, rows in chart.cohorts:
        found[rows] = len(rows) >= SMALLEST and earlier[rows].mean() > MOST
    return found


RULE = WrittenRule(
    code="FL605",
    name="stale update",
    page=__doc__ or "",
    look=_look,
    needs=frozenset({Sight.SKETCHES}),
    explains=frozenset({"FL414"}) | SCORED_CODES,
)
