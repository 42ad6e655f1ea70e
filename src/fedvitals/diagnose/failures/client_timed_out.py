"""Client timed out.

Sees: clients that took the model and gave no answer until the server gave up: failures by timeout, and participations
that were dropped with no other reason recorded.

Matters: a synchronous round lasts until the server gives up, so one silent client can cost more than all others
together; and what it has learnt is lost.

Evidence: for each client how often it was silent, out of how many participations, from which round on, and how long it
was waited for, as a share of those rounds.

False alarms: none; it happened. A deadline set too short makes timeouts of clients that are merely slow: compare the
wait with what the others take.

Do: look at the client's own log and link. Ask more clients than are needed and go on without the last ones
(`over_select`, `deadline_s`), or train asynchronously.

Papers: Bonawitz et al., Towards Federated Learning at Scale (MLSys 2019).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.failures.kinds import Kind, of_clients
from fedvitals.diagnose.rule import WrittenRule
from fedvitals.diagnose.words import listed, ranges
from fedvitals.diagnose.writing import seconds, see_client, share, times, write
from fedvitals.store.table import Bools, Ints
from fedvitals.vocabulary import CLIENT_PHASES, Action, Finding, Outcome, Severity

WAIT = CLIENT_PHASES.index("wait")
MOST_CLIENTS = 50


def _look(chart: Chart) -> Iterator[Finding]:
    silent = chart.shared(silent_rows)
    failures = of_clients(chart, Kind.TIMEOUT)
    if not failures and not silent.any():
        return
    table = chart.participations
    rows = np.flatnonzero(silent)
    counts = {chart.clients[int(one)]: int(np.sum(table.client[rows] == one)) for one in np.unique(table.client[rows])}
    for one in failures:
        counts.setdefault(str(one.client), 1)
    rounds = {int(one) for one in table.round[rows]} | {one.round for one in failures if one.round is not None}
    waited, part = _waiting(chart, rows)
    yield write(
        RULE,
        Severity.WARNING,
        f"{_who(chart, counts)} no answer {times(max(len(rows), len(failures)))}, in rounds {ranges(list(rounds))}"
        + (f"; each was waited for {seconds(waited)}, {share(part)} of those rounds' time" if waited > 0 else ""),
        rounds=rounds,
        clients=counts,
        evidence={
            "count": max(len(rows), len(failures)),
            "per_client": dict(list(counts.items())[:MOST_CLIENTS]),
            "waited_s": waited,
            "share_of_rounds": part,
        },
        next=[
            see_client(next(iter(counts))),
            Action(
                "set server.over_select above 1 and a server.deadline_s, so that rounds go on without it", safe=False
            ),
        ],
    )


def silent_rows(chart: Chart) -> Bools:
    """Participations without an answer: dropped ones, but for those that failed in another way."""
    table = chart.participations
    position = {name: number for number, name in enumerate(chart.clients)}
    key = table.client * (int(table.attempt.max(initial=0)) + 1) + table.attempt
    width = int(table.attempt.max(initial=0)) + 1

    def keys(*kinds: Kind) -> Ints:
        found = [
            position[str(one.client)] * width + one.attempt
            for one in of_clients(chart, *kinds)
            if one.attempt is not None and one.client in position and one.attempt < width
        ]
        return np.array(found, dtype=np.int64)

    otherwise = np.isin(key, keys(Kind.RAISED, Kind.TRANSFER, Kind.DATA))
    silent: Bools = ((table.outcome == Outcome.DROPPED.value) & ~otherwise) | np.isin(key, keys(Kind.TIMEOUT))
    return silent


def _who(chart: Chart, counts: dict[str, int]) -> str:
    if len(counts) > 1:
        return f"{len(counts)} clients ({listed(list(counts))}) gave"
    name, count = next(iter(counts.items()))
    of = len(chart.histories[chart.clients.index(name)]) if name in chart.clients else count
    return f"client {name}, in {count} of {times(of, 'participation')}, gave"


def _waiting(chart: Chart, rows: Ints) -> tuple[float, float]:
    """The median wait, and the share that the longest wait of each such round has in it."""
    table = chart.participations
    if not len(rows):
        return 0.0, 0.0
    waits = np.where(np.isfinite(table.phases_s[rows, WAIT]), table.phases_s[rows, WAIT], 0.0)
    waits = np.maximum(waits, np.nan_to_num(table.end_s[rows] - table.start_s[rows]))
    lengths = {one.number: (one.end_ns - one.start_ns) / 1e9 for one in chart.rounds if one.end_ns is not None}
    longest: dict[int, float] = {}
    for number, wait in zip(table.round[rows].tolist(), waits.tolist(), strict=True):
        longest[number] = max(longest.get(number, 0.0), wait)
    total = sum(lengths[number] for number in longest if number in lengths)
    held = sum(wait for number, wait in longest.items() if number in lengths)
    return float(np.median(waits)), min(held / total, 1.0) if total > 0 else 0.0


RULE = WrittenRule(
    code="FL102",
    name="client timed out",
    page=__doc__ or "",
    look=_look,
    explains=frozenset({"FL103", "FL104", "FL105", "FL202", "FL205"}),
)
