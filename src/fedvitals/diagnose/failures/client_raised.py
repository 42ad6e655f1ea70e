"""Client raised an exception.

Sees: failures of clients that carry an exception, grouped by cause: the same kind of exception, with the same message
but for its numbers, at the same stage.

Matters: a client that raises is left out of its round. When it is always the same clients, the model never learns
their data, and it does not show in the accuracy of the rest.

Evidence: how often, in which rounds, for which clients, at which stage, with the traceback of the first.

False alarms: none; it happened. A failure that a client got over by itself is one all the same.

Do: read the traceback. One cause at several clients is a bug in the code that they share; one at a single client is in
its data or its machine.

Papers: none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.rule import WrittenRule
from fedvitals.vocabulary import Action, Failure, Finding, Grade, Severity

OTHERS = frozenset({"timeout", "bad telemetry"})  # rules of their own see these
MOST_TRACEBACK = 4000


def _look(chart: Chart) -> Iterator[Finding]:
    for causes in _by_cause(chart.failures).values():
        first = causes[0]
        clients = tuple(dict.fromkeys(one.client for one in causes if one.client is not None))
        times = "once" if len(causes) == 1 else f"{len(causes)} times"
        yield Finding(
            code=RULE.code,
            name=RULE.name,
            severity=Severity.WARNING,
            grade=Grade.CERTAIN,
            rounds=tuple(sorted({one.round for one in causes if one.round is not None})),
            clients=clients,
            layers=(),
            why=f"{first.kind} {times} in {first.stage}: {first.message}",
            evidence={
                "kind": first.kind,
                "stage": first.stage,
                "message": first.message,
                "count": len(causes),
                "traceback": (first.traceback or "")[-MOST_TRACEBACK:],
            },
            next=(Action(f"fedvitals show RUN --client {clients[0]}"),),
        )


def _by_cause(failures: tuple[Failure, ...]) -> dict[tuple[str, str, str], list[Failure]]:
    groups: dict[tuple[str, str, str], list[Failure]] = {}
    for one in failures:
        if one.client is not None and one.kind not in OTHERS:
            shape = re.sub(r"\d+(\.\d+)?", "#", one.message)  # client 3 and client 7 fail for the same reason
            groups.setdefault((one.kind, one.stage, shape), []).append(one)
    return groups


RULE = WrittenRule(code="FL101", name="client raised", page=__doc__ or "", look=_look)
