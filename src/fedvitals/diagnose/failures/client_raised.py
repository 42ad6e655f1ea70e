"""Client raised an exception.

Sees: failures of clients that carry an exception, grouped by cause: the same kind of exception, with the same message
but for its numbers, at the same stage. Timeouts (FL102), broken transfers (FL302) and shapes that do not fit (FL107)
have rules of their own.

Matters: a client that raises is left out of its round. When it is always the same clients, the model never learns
their data, and it does not show in the accuracy of the rest.

Evidence: how often, in which rounds, how often for each client and out of how many of its participations, at which
stage, the line that raised, and the traceback of the first.

False alarms: none; it happened. A failure that a client got over by itself is one all the same.

Do: read the traceback. One cause at several clients is a bug in the code that they share; one at a single client is in
its data or its machine.

Papers: none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.failures.kinds import Kind, cause, of_clients
from fedvitals.diagnose.rule import WrittenRule
from fedvitals.diagnose.words import listed
from fedvitals.diagnose.writing import see_client, times, write
from fedvitals.vocabulary import Failure, Finding, Severity

MOST_TRACEBACK = 4000
MOST_MESSAGE = 300
MOST_CLIENTS = 50
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')


def _look(chart: Chart) -> Iterator[Finding]:
    groups: dict[tuple[str, str, str], list[Failure]] = {}
    for one in of_clients(chart, Kind.RAISED):
        groups.setdefault(cause(one), []).append(one)
    taken_part = Counter({name: len(rows) for name, rows in zip(chart.clients, chart.histories, strict=True)})
    for causes in groups.values():
        yield _finding(causes, taken_part)


def _finding(causes: Sequence[Failure], taken_part: Counter[str]) -> Finding:
    first = causes[0]
    counts = Counter(str(one.client) for one in causes)
    traceback = next((one.traceback for one in causes if one.traceback), None) or ""
    place = raised_at(traceback)
    return write(
        RULE,
        Severity.WARNING,
        f"{first.kind} {times(len(causes))} in {first.stage}{f' at {place}' if place else ''}, "
        f"{_who(counts, taken_part)}: {first.message[:MOST_MESSAGE]}",
        rounds=[one.round for one in causes if one.round is not None],
        clients=counts,
        evidence={
            "kind": first.kind,
            "stage": first.stage,
            "message": first.message,
            "count": len(causes),
            "at": place,
            "per_client": {name: [count, taken_part[name]] for name, count in counts.most_common(MOST_CLIENTS)},
            "traceback": traceback[-MOST_TRACEBACK:],
        },
        next=[see_client(next(iter(counts)))],
    )


def _who(counts: Counter[str], taken_part: Counter[str]) -> str:
    """One client: how many of its participations; several: that they share the cause."""
    if len(counts) == 1:
        name, count = next(iter(counts.items()))
        return f"in {count} of {max(taken_part[name], count)} participations of client {name}"
    return f"at {len(counts)} clients ({listed(list(counts))}), so in what they share"


def raised_at(traceback: str) -> str:
    """The innermost line of the user's own code, or of any where there is none: file, line and function."""
    frames = _FRAME.findall(traceback)
    own = [frame for frame in frames if "site-packages" not in frame[0] and "/lib/python" not in frame[0]]
    if not frames:
        return ""
    path, line, function = (own or frames)[-1]
    return f"{path.replace(chr(92), '/').rsplit('/', 1)[-1]}:{line} ({function})"


RULE = WrittenRule(
    code="FL101", name="client raised", page=__doc__ or "", look=_look, explains=frozenset({"FL103", "FL105", "FL205"})
)
