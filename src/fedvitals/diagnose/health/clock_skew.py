"""Clock skew.

Sees: clients on other machines whose clock is ahead of or behind the server's, by the four times of a ticket's way out
and back.

Matters: logs of two machines cannot be laid side by side, certificates and tokens are refused, deadlines are missed or
never reached. The times in a run's record are put right by the same estimate, so findings about time still hold.

Evidence: the client's median skew in seconds, and how far it can be wrong: by as much as the way out and the way back
differ, which is at most the time between the round's start and the client's.

False alarms: a skew below a second, or within its own possible error, is not reported. Skew is worth a warning when it
is longer than a round, because then even the order of rounds is wrong in a log; otherwise it is told of (info).

Do: run a time service (chrony, systemd-timesyncd) on the client.

Papers: Mills, Internet Time Synchronization: The Network Time Protocol (1991).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.robust import median
from fedvitals.diagnose.rule import CannotSee, WrittenRule
from fedvitals.diagnose.writing import seconds, write
from fedvitals.store.table import Floats
from fedvitals.vocabulary import Finding, Severity

LEAST_S = 1.0  # what a log shows


def _look(chart: Chart) -> Iterator[Finding]:
    table = chart.participations
    known = np.isfinite(table.clock_skew_s)
    if not known.any():
        raise CannotSee("no client was on another machine with a ticket")
    error = _error(chart)
    length = median(np.array([((one.end_ns or one.start_ns) - one.start_ns) / 1e9 for one in chart.rounds]))
    for client in np.unique(table.client[known]).tolist():
        rows = chart.histories[client]
        rows = rows[known[rows]]
        skew, unsure = median(table.clock_skew_s[rows]), median(error[rows])
        if abs(skew) <= max(LEAST_S, unsure if np.isfinite(unsure) else 0.0):
            continue
        name = chart.clients[client]
        yield write(
            RULE,
            Severity.WARNING if abs(skew) > length else Severity.INFO,
            f"client {name}'s clock is {seconds(abs(skew))} {'ahead of' if skew > 0 else 'behind'} the server's, give "
            f"or take {seconds(unsure)}; a round takes {seconds(length)}",
            rounds=table.round[rows].tolist(),
            clients=[name],
            evidence={"skew_s": skew, "error_s": unsure, "round_s": length, "participations": len(rows)},
            next=[f"run a time service (chrony, systemd-timesyncd) on client {name}"],
        )


def _error(chart: Chart) -> Floats:
    """The estimate halves the ways out and back: it can be wrong by what lies between the round's start and its own."""
    starts = {one.number: one.start_ns / 1e9 for one in chart.rounds}
    error = np.full(len(chart.participations), np.nan)
    for number, rows in chart.cohorts:
        error[rows] = np.maximum(chart.participations.start_s[rows] - starts.get(number, np.nan), 0.0)
    return error


RULE = WrittenRule(code="FL903", name="clock skew", page=__doc__ or "", look=_look)
