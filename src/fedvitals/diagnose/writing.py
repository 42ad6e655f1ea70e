"""How a rule words its findings: the record itself, and seconds, bytes, shares and counts as a person writes them."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from fedvitals.diagnose.rule import Rule
from fedvitals.vocabulary import Action, Finding, Grade, Severity

DIGITS = 4  # of a number in evidence: enough to check, short enough to read


def write(
    rule: Rule,
    severity: Severity,
    why: str,
    *,
    grade: Grade = Grade.CERTAIN,
    rounds: Iterable[int] = (),
    clients: Iterable[str] = (),
    layers: Iterable[str] = (),
    evidence: Mapping[str, Any] | None = None,
    next: Iterable[Action | str] = (),
) -> Finding:
    """A finding of this rule. Actions given as text are safe ones."""
    return Finding(
        code=rule.code,
        name=rule.name,
        severity=severity,
        grade=grade,
        rounds=tuple(sorted({int(one) for one in rounds})),
        clients=tuple(dict.fromkeys(clients)),
        layers=tuple(layers),
        why=why,
        evidence=dict(evidence or {}),
        next=tuple(one if isinstance(one, Action) else Action(one) for one in next),
    )


def changing(*texts: str) -> tuple[Action, ...]:
    """Actions that change the training."""
    return tuple(Action(text, safe=False) for text in texts)


def see_client(name: str) -> str:
    """The command that shows one client's history; RUN stands for the run. The name is the client's own word."""
    return f"fedvitals show RUN --client {shlex.quote(name)}"


def short(number: float) -> float:
    """Rounded for evidence; what is not finite stays as it is."""
    return float(f"{float(number):.{DIGITS}g}")


def factor(number: float) -> str:
    """'3.5 times', '120 times', '2e+13 times': as a person says a factor."""
    if number >= 1e6:
        return f"{number:.1g} times"
    return f"{number:.1f} times" if number < 10 else f"{number:.0f} times"


def seconds(value: float) -> str:
    """350 us, 12 ms, 3.4 s, 125 s."""
    if not math.isfinite(value):
        return "an unknown time"
    if abs(value) < 1e-3:
        return f"{value * 1e6:.0f} us"
    if abs(value) < 1:
        return f"{value * 1e3:.{1 if abs(value) < 0.01 else 0}f} ms"
    return f"{value:.1f} s" if abs(value) < 100 else f"{value:,.0f} s"


def size(value: float) -> str:
    """850 B, 12.3 kB, 4.0 MB, 2.1 GB."""
    if not math.isfinite(value):
        return "unknown bytes"
    for unit, worth in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(value) >= worth:
            return f"{value / worth:,.1f} {unit}"
    return f"{value:.0f} B"


def share(value: float) -> str:
    """A part of a whole, in percent."""
    return f"{100 * value:.0f}%" if math.isfinite(value) else "an unknown share"


def times(count: int, of: str = "time") -> str:
    """`once`, `twice`, `5 times`; with another noun `1 round`, `5 rounds`."""
    if of == "time" and count in (1, 2):
        return "once" if count == 1 else "twice"
    return f"{count:,} {of}{'' if count == 1 else 's'}"


def between(low: float, high: float, worded: Any = seconds) -> str:
    """`1.0 s to 1.3 s`, or one value where the two read alike."""
    first, last = worded(low), worded(high)
    return first if first == last else f"{first} to {last}"
