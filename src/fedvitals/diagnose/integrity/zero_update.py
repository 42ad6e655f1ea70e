"""Zero update: a client sends back the model it was given.

Sees: an update that is exactly nothing, or smaller than the rounding of float32 beside the cohort's, while the others
move. A cohort of which more than half stands still is not judged: then it is the training, not a client; nor is a
client whose loss is next to nothing: of rows that are all learnt the gradient is nothing; nor anybody on a model that
was thrown far behind its beginning, whose units may be dead.

Matters: a free rider takes the model and gives nothing; with sample weights it also slows everybody down by its share.

Evidence: the rounds, its norm, and the cohort's median norm.

False alarms: none were seen in clean runs. A client without a single batch (no rows, an empty loader) looks the same,
and should be mended too.

Do: ask what this client trains on; leave it out or give it no weight.

Papers: Fraboni, Vidal, Lorenzi, "Free-rider attacks on model aggregation in federated learning", AISTATS 2021.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.cohorts import spoilt
from fedvitals.diagnose.evidence.accusing import SCORED_CODES
from fedvitals.diagnose.learnt import all_learnt
from fedvitals.diagnose.rule import Sight, WrittenRule
from fedvitals.diagnose.writing import see_client, times, write
from fedvitals.store.table import Bools
from fedvitals.vocabulary import Action, Finding, Severity

NOTHING = 1e-7  # of the cohort's median norm: below the rounding of float32
MOST = 0.5  # of a cohort


def _look(chart: Chart) -> Iterator[Finding]:
    table = chart.participations
    still, usual = _still(chart)
    for client in np.unique(table.client[still]):
        rows = np.flatnonzero(still & (table.client == client))
        name = chart.clients[int(client)]
        yield write(
            RULE,
            Severity.WARNING,
            f"client {name} sent an update of nothing {times(len(rows))}; the cohort's median norm was "
            f"{np.median(usual[rows]):.3g}",
            rounds=table.round[rows],
            clients=(name,),
            evidence={"participations": len(rows), "cohort_norm": float(np.median(usual[rows]))},
            next=(
                see_client(name),
                Action(f"leave client {name} out, or weigh it by 0", safe=False),
            ),
        )


def _still(chart: Chart) -> tuple[Bools, np.ndarray]:
    """Which participations stand still while their cohort moves, and the cohort's median norm."""
    table, updates = chart.participations, chart.updates
    still = np.zeros(len(table), bool)
    usual = np.full(len(table), np.nan)
    if updates is None:
        return still, usual
    norms = np.sqrt((updates.norms.astype(np.float64) ** 2).sum(axis=1))
    for _, cohort in chart.cohorts:
        rows = cohort[updates.present[cohort] & np.isfinite(norms[cohort])]
        if len(rows) < 3:
            continue
        usual[rows] = np.median(norms[rows])
        nothing = norms[rows] <= NOTHING * usual[rows]
        if usual[rows[0]] > 0 and nothing.mean() <= MOST:
            still[rows] = nothing
    return still & ~chart.shared(all_learnt) & ~chart.shared(spoilt), usual


RULE = WrittenRule(
    code="FL604",
    name="zero update",
    page=__doc__ or "",
    look=_look,
    needs=frozenset({Sight.UPDATES}),
    explains=frozenset({"FL413", "FL408", "FL409"}) | SCORED_CODES,
)
