"""Straggler.

Sees: a client whose computing takes at least twice what its steps and rows take at the others of its rounds, again and
again. Loading (FL204) and transfers (FL301) are counted apart, and a client that merely has more rows is none.

Matters: a synchronous round waits for its slowest client; at twice the time the others idle for half of it.
Where training has no rounds nobody waits for it: then it is only told of (info), with how stale its updates came.

Evidence: its seconds and those of the others in the same rounds, the factor once rows and steps are taken into
account, in how many of its participations it was so slow, how many rounds waited for it and how many ended without it,
and what it was before.

False alarms: at most one run in a hundred by the persistence test (each participation is marked as slow against what
its steps and rows take; chance is how often others are), and the factor must lie beyond the spread of the clients' own
medians. In a federation of mixed devices half of the clients may be slow by nature: then none is named. Measured times
carry the machine's noise, which can hide a straggler with few participations; there it must also have been the longest
in half of them, and be twice as slow as others with at least half as much to do: who has by far the most rows is not
judged by measured times, and what is measured in less than a hundredth of a second is not judged either: a process that
is put aside for a moment takes longer than that. Where all clients were trained on one machine, the same client may
come at the same busy moment of every round, which is no chance of its own: there a straggler is slow nearly every time,
since what is slow by itself is never quick.

Do: look at the client's computer. Let rounds end without the last ones (`over_select`, `deadline_s`), train
asynchronously, or give slow clients fewer epochs (FedProx allows that).

Papers: Li et al., Federated Optimization in Heterogeneous Networks (MLSys 2020); Nguyen et al., Federated Learning with
Buffered Asynchronous Aggregation (AISTATS 2022).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.persistence import Streak, streaks
from fedvitals.diagnose.robust import median
from fedvitals.diagnose.rule import CannotSee, Sight, WrittenRule
from fedvitals.diagnose.timing.spent import Held, beyond_nature, held, in_company, least_marks, others, slowness, spent
from fedvitals.diagnose.writing import between, seconds, see_client, times, write
from fedvitals.store.table import Floats
from fedvitals.vocabulary import Action, Finding, Grade, Severity

FACTORS = (2.0, 3.0, 5.0)  # slow, in noise of growing height; at twice the time the others idle for half of it
HOLDS = 0.5  # of its slow participations must be the longest of their rounds
NOISY_RATE = 0.001  # a busy machine is slow for a while, so that what it marks is less by chance than reckoned
NEARLY_ALWAYS = 0.9  # of its participations, on a machine that clients share: such a one is busy only at times
LEAST_MEASURED_S = 0.01  # about how long a process is put aside for another
LEAST_PEERS = 2  # other clients with at least half as much to do
LEAVE_OUT = "let rounds go on without it: server.over_select above 1 and a server.deadline_s, or train.exclude"
LEFT_OUT = "let its work count with a longer server.deadline_s, or spare it the work with train.exclude"
FRESHER = 'ask it less often, for its updates come stale: server.selection = "pisces"'
RATE = 0.01


def _look(chart: Chart) -> Iterator[Finding]:
    if len(chart.clients) < 2:
        raise CannotSee("one client alone is neither slow nor fast")
    slow = chart.shared(slowness)
    seen = np.isfinite(slow)
    if not seen.any():
        raise CannotSee("the times of clients are not known")
    best: dict[int, Streak] = {}
    for factor in FACTORS:
        for streak in streaks(chart, slow > math.log(factor), seen, least=least_marks(chart), comparisons=len(FACTORS)):
            known = best.get(streak.client)
            if known is None or streak.chance < known.chance:
                best[streak.client] = streak
    least = beyond_nature(chart, slow) if best else 0.0
    for streak in sorted(best.values(), key=lambda one: one.chance):
        if median(slow[streak.seen]) > least and _matters(chart, streak, slow):
            yield _finding(chart, streak, slow)


def _matters(chart: Chart, streak: Streak, slow: Floats) -> bool:
    """Measured times are noisy. There, a straggler holds up rounds, and is slow beside others with as much to do: on a
    busy machine short work fits between two interruptions, and long work never does."""
    if chart.run.environment.get("clock") == "virtual" or chart.shared(in_company)[streak.rows].all():
        return True
    if median(chart.shared(spent).compute[streak.rows]) < LEAST_MEASURED_S:
        return False
    if streak.chance > NOISY_RATE or chart.shared(spent).longest[streak.rows].mean() < HOLDS:
        return False
    if "executor" in chart.run.environment and len(streak.rows) < NEARLY_ALWAYS * len(streak.seen):
        return False
    table = chart.participations
    work = np.log(np.maximum(chart.shared(spent).compute, 1e-12)) - slow
    peers = (table.client != streak.client) & (work >= median(work[streak.rows]) - math.log(2))
    enough = len(np.unique(table.client[peers])) >= LEAST_PEERS
    return enough and median(slow[streak.rows]) - median(slow[peers]) > math.log(FACTORS[0])


def _finding(chart: Chart, streak: Streak, slow: Floats) -> Finding:
    table, name = chart.participations, chart.clients[streak.client]
    took = chart.shared(spent).compute
    own, (low, high) = float(np.median(took[streak.rows])), others(chart, streak, took)
    factor = math.exp(float(np.median(slow[streak.rows])))
    rounds = held(chart, streak.rows)
    earlier = np.setdiff1d(chart.histories[streak.client], streak.seen)
    before = math.exp(median(slow[earlier])) if np.isfinite(median(slow[earlier])) else None
    since = int(table.round[streak.rows[0]])
    return write(
        RULE,
        Severity.INFO if rounds.behind > 0 else Severity.WARNING,
        f"client {name} computed for {seconds(own)}, the others {between(low, high)}: {factor:.1f} times as long as "
        f"its steps and rows take elsewhere, in {len(streak.rows)} of {times(len(streak.seen), 'participation')} from "
        f"round {since} on{f' ({before:.1f} times before)' if before else ''}; {rounds.words}",
        grade=Grade.ACCUSED,
        rounds=table.round[streak.rows].tolist(),
        clients=[name],
        evidence={
            "seconds": own,
            "others_s": [low, high],
            "factor": factor,
            "factor_before": before,
            "slow": len(streak.rows),
            "participations": len(streak.seen),
            "held_up": rounds.up,
            "late": rounds.late,
            "behind": rounds.behind,
            "chance": streak.chance,
        },
        next=[see_client(name), Action(_advice(rounds), safe=False)],
    )


def _advice(rounds: Held) -> str:
    if rounds.behind > 0:
        return FRESHER
    return LEFT_OUT if rounds.late > rounds.up else LEAVE_OUT


RULE = WrittenRule(
    code="FL201",
    name="straggler",
    page=__doc__ or "",
    look=_look,
    needs=frozenset({Sight.PARTICIPATIONS}),
    explains=frozenset({"FL202", "FL205"}),
)
