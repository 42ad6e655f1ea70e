"""Upload dominates.

Sees: a client that again and again spends more than half of its time on transfers, and at least twice as long on them
as the others do; and runs in which transfers take more than half of all clients' time.

Matters: a synchronous round waits for the slowest link. Faster computers do not help; fewer bytes or fewer rounds do.

Evidence: its seconds of transfer and of everything else, the others' seconds of transfer, bytes and the rate they come
to, how often that was so.

False alarms: the word gives the bound, more than half; a client is named when chance, by how often it happens to the
others, would do that in at most one run in a hundred, and when its link is slower than the spread of all clients'
links makes likely: links are of many kinds, and one kind is no fault. That everybody is bound by the network is normal
for small models and only told of (info). Loops that do not time their transfers are not seen.

Do: look at the client's link. Compress the update (`codec.up`), train longer between rounds, let rounds end without the
last ones.

Papers: Konecny et al., Federated Learning: Strategies for Improving Communication Efficiency (2016).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.persistence import Streak, streaks
from fedvitals.diagnose.robust import median
from fedvitals.diagnose.rule import CannotSee, Sight, WrittenRule
from fedvitals.diagnose.timing.spent import TRANSFERS, TWICE, Spent, beyond_nature, held, least_marks, others, spent
from fedvitals.diagnose.writing import between, seconds, see_client, share, size, times, write
from fedvitals.store.table import Bools, Floats
from fedvitals.vocabulary import Action, Finding, Grade, Severity

MOST = 0.5  # what takes more than half dominates
LEAST_S = 1e-6
LEAST_ROWS = 5
COMPRESS = Action("compress the update: codec.up = 'quantize:8'", safe=False)
FURTHER = Action("compress further: codec.down too, or codec.adapt, which goes by each client's link", safe=False)
COMPRESSED = 1.5  # times fewer bytes on the wire than without a codec


def _look(chart: Chart) -> Iterator[Finding]:
    worked = chart.shared(spent)
    timed = np.isfinite(chart.participations.phases_s[:, TRANSFERS]).any(axis=1) & worked.finished
    if not timed.any():
        raise CannotSee("no client timed its transfers")
    bound = worked.finished & (worked.transfer > MOST * worked.total)
    slow = _slowness(chart, worked)
    found = streaks(chart, bound & (slow > math.log(TWICE)), worked.finished, least=least_marks(chart))
    least = beyond_nature(chart, slow) if found else 0.0
    found = [one for one in found if median(slow[one.seen]) > least]
    for streak in found:
        yield _one(chart, streak, worked)
    rest = worked.finished & ~np.isin(chart.participations.client, [one.client for one in found])
    transfer, total = float(worked.transfer[rest].sum()), float(worked.total[rest].sum())
    if (bound & rest).sum() > MOST * rest.sum() and rest.sum() >= LEAST_ROWS and transfer > MOST * total:
        yield _all(chart, bound & rest, transfer, total)


def _slowness(chart: Chart, worked: Spent) -> Floats:
    """The logarithm of each one's time of transfer over the median of its round. Who timed none took none, as a rule
    where only the slow do: then the others' is the least that a clock can tell."""
    slow = np.full(len(worked.transfer), np.nan)
    for _, rows in chart.cohorts:
        own = rows[worked.finished[rows]]
        if len(own) > 1:
            took = np.maximum(worked.transfer[own], LEAST_S)
            slow[own] = np.log(took / np.median(took))
    return slow


def _one(chart: Chart, streak: Streak, worked: Spent) -> Finding:
    table, name = chart.participations, chart.clients[streak.client]
    transfer, total = median(worked.transfer[streak.rows]), median(worked.total[streak.rows])
    low, high = others(chart, streak, np.where(worked.finished, worked.transfer, np.nan))
    sent = median(np.nan_to_num(table.wire_bytes_up[streak.rows]) + np.nan_to_num(table.wire_bytes_down[streak.rows]))
    rounds = held(chart, streak.rows)
    amount = f" for {size(sent)} ({size(sent / transfer)}/s)" if sent > 0 else ""
    return write(
        RULE,
        Severity.WARNING,
        f"client {name} spent {seconds(transfer)} of {seconds(total)} on transfers{amount}, the others "
        f"{between(low, high)}; in {len(streak.rows)} of {times(len(streak.seen), 'participation')} from round "
        f"{int(table.round[streak.rows[0]])} on; {rounds.words}",
        grade=Grade.ACCUSED,
        rounds=table.round[streak.rows].tolist(),
        clients=[name],
        evidence={
            "transfer_s": transfer,
            "total_s": total,
            "others_s": [low, high],
            "bytes": sent,
            "dominated": len(streak.rows),
            "participations": len(streak.seen),
            "held_up": rounds.up,
            "late": rounds.late,
            "chance": streak.chance,
        },
        next=[see_client(name), _advice(chart)],
    )


def _all(chart: Chart, bound: Bools, transfer: float, total: float) -> Finding:
    rows = np.flatnonzero(bound)
    return write(
        RULE,
        Severity.INFO,
        f"clients spent {seconds(transfer)} of {seconds(total)} on transfers, {share(transfer / total)}: the network, "
        f"not the computing, sets the pace",
        rounds=np.unique(chart.participations.round[rows]).tolist(),
        evidence={"transfer_s": transfer, "total_s": total, "whose": "all clients"},
        next=["fedvitals show RUN", _advice(chart)],
    )


def _advice(chart: Chart) -> Action:
    table = chart.participations
    with np.errstate(divide="ignore", invalid="ignore"):
        fewer = median(table.raw_bytes_up / table.wire_bytes_up)
    return FURTHER if fewer > COMPRESSED else COMPRESS


RULE = WrittenRule(
    code="FL301",
    name="upload dominates",
    page=__doc__ or "",
    look=_look,
    needs=frozenset({Sight.CLIENT_PHASES}),
    explains=frozenset({"FL201", "FL202", "FL205"}),
)
