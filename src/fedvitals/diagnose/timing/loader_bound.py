"""Loader-bound client.

Sees: a client that again and again spends more than half of its loading and computing on waiting for its own data, when
the others do not; or that this is so for the run as a whole.

Matters: its processor idles. More compute does not help it; a faster disk, more loader processes or data decoded once
and kept do.

Evidence: its seconds of loading and of computing, the share, how often that was so, and the others' share.

False alarms: the word gives the bound, more than half; a client is named when chance, by how often it happens to the
others, would do that in at most one run in a hundred, and it is so in three of four participations. Loops that do not
time their loader (`c.batches`) are not seen.

Do: keep decoded rows in memory, load in other processes (`num_workers`), read ahead, move the data to a local disk.

Papers: Mohan et al., Analyzing and Mitigating Data Stalls in DNN Training (VLDB 2021).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.persistence import Streak, streaks
from fedvitals.diagnose.rule import CannotSee, Sight, WrittenRule
from fedvitals.diagnose.timing.spent import LOAD, held, least_marks, others, spent
from fedvitals.diagnose.writing import between, seconds, see_client, share, times, write
from fedvitals.store.table import Bools, Floats
from fedvitals.vocabulary import Finding, Grade, Severity

MOST = 0.5  # what takes more than half binds
LEAST_ROWS = 5
HABIT = 0.75  # of its participations: a disk that is slow is slow nearly always, a busy machine now and then
DO = "load in other processes (num_workers), read ahead, or keep decoded rows in memory"


def _look(chart: Chart) -> Iterator[Finding]:
    worked = chart.shared(spent)
    seen: Bools = worked.finished & np.isfinite(chart.participations.phases_s[:, LOAD])
    if not seen.any():
        raise CannotSee("no client timed its loading")
    part = np.where(seen, worked.load / np.maximum(worked.load + worked.compute, 1e-12), np.nan)
    bound = seen & (part > MOST)
    load, compute = float(worked.load[seen].sum()), float(worked.compute[seen].sum())
    if bound.sum() > MOST * seen.sum() and seen.sum() >= LEAST_ROWS and load > compute:
        yield _all(chart, bound, load, compute)
        return
    for streak in streaks(chart, bound, seen, least=least_marks(chart)):
        habit = len(streak.rows) >= HABIT * len(streak.seen)
        if habit and float(worked.load[streak.seen].sum()) > float(worked.compute[streak.seen].sum()):
            yield _one(chart, streak, part)


def _all(chart: Chart, bound: Bools, load: float, compute: float) -> Finding:
    rows = np.flatnonzero(bound)
    return write(
        RULE,
        Severity.WARNING,
        f"clients waited {seconds(load)} for their data and computed {seconds(compute)}: loading is more than half in "
        f"{len(rows)} of {times(int(chart.shared(spent).finished.sum()), 'participation')}",
        rounds=np.unique(chart.participations.round[rows]).tolist(),
        evidence={"load_s": load, "compute_s": compute, "bound": len(rows), "whose": "most clients"},
        next=[DO, "fedvitals show RUN"],
    )


def _one(chart: Chart, streak: Streak, part: Floats) -> Finding:
    table, name, worked = chart.participations, chart.clients[streak.client], chart.shared(spent)
    load, compute = float(np.median(worked.load[streak.rows])), float(np.median(worked.compute[streak.rows]))
    low, high = others(chart, streak, part)
    own = float(np.median(part[streak.rows]))
    rounds = held(chart, streak.rows)
    return write(
        RULE,
        Severity.WARNING,
        f"client {name} waited {seconds(load)} for its data and computed {seconds(compute)}: {share(own)} is loading, "
        f"at the others {between(low, high, share)}; in {len(streak.rows)} of "
        f"{times(len(streak.seen), 'participation')} from round {int(table.round[streak.rows[0]])} on; "
        f"{rounds.words}",
        grade=Grade.ACCUSED,
        rounds=table.round[streak.rows].tolist(),
        clients=[name],
        evidence={
            "load_s": load,
            "compute_s": compute,
            "share": own,
            "others": [low, high],
            "bound": len(streak.rows),
            "participations": len(streak.seen),
            "held_up": rounds.up,
            "late": rounds.late,
            "chance": streak.chance,
        },
        next=[DO, see_client(name)],
    )


RULE = WrittenRule(
    code="FL204",
    name="loader-bound client",
    page=__doc__ or "",
    look=_look,
    needs=frozenset({Sight.CLIENT_PHASES}),
    explains=frozenset({"FL201", "FL202", "FL205"}),
)
