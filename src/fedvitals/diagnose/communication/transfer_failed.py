"""Transfer failed.

Sees: failures while a model or an update was on its way: in download, upload, encode or decode, or with an exception of
a connection; and messages with a client's own records that could not be read.

Matters: the client has trained for nothing; when the model did not reach it, it did not train at all. Records that
cannot be read leave the client unseen: nothing can be said of it.

Evidence: how often, in which rounds and stage, for which clients, with the message.

False alarms: none; it happened.

Do: one client: its link, its proxy, the size limit of its messages. All clients: the server or the codec. Unreadable
records: the two sides run different versions, or something on the way changes bytes.

Papers: none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.failures.kinds import BAD_TELEMETRY, Kind, cause, of_clients
from fedvitals.diagnose.rule import WrittenRule
from fedvitals.diagnose.words import listed
from fedvitals.diagnose.writing import see_client, times, write
from fedvitals.vocabulary import Failure, Finding, Severity

MOST_MESSAGE = 300


def _look(chart: Chart) -> Iterator[Finding]:
    groups: dict[tuple[str, str, str], list[Failure]] = {}
    for one in of_clients(chart, Kind.TRANSFER):
        groups.setdefault(cause(one), []).append(one)
    for causes in groups.values():
        yield _finding(causes)


def _finding(causes: list[Failure]) -> Finding:
    first, counts = causes[0], Counter(str(one.client) for one in causes)
    who = f"client {first.client}" if len(counts) == 1 else f"{len(counts)} clients ({listed(list(counts))})"
    unread = first.kind == BAD_TELEMETRY
    what = "its records could not be used" if unread else f"{first.kind} in {first.stage}"
    return write(
        RULE,
        Severity.WARNING,
        f"{who}, {times(len(causes))}: {what}: {first.message[:MOST_MESSAGE]}",
        rounds=[one.round for one in causes if one.round is not None],
        clients=counts,
        evidence={
            "kind": first.kind,
            "stage": first.stage,
            "message": first.message,
            "count": len(causes),
            "per_client": dict(counts.most_common(50)),
        },
        next=[see_client(next(iter(counts)))],
    )


RULE = WrittenRule(
    code="FL302",
    name="transfer failed",
    page=__doc__ or "",
    look=_look,
    explains=frozenset({"FL103", "FL105"}),
)
