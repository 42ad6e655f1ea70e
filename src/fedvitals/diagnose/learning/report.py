"""A rule's findings in one call: what every rule of this family, and of the next, fills in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fedvitals.diagnose.rule import WrittenRule
from fedvitals.vocabulary import Action, Finding, Grade, JSONObject, Severity

DIGITS = 4  # of a number in evidence: enough to check, short enough to read


def finding(
    rule: WrittenRule,
    severity: Severity,
    grade: Grade,
    why: str,
    evidence: JSONObject,
    next: Sequence[Action],
    *,
    rounds: Iterable[int] = (),
    clients: Sequence[str] = (),
    layers: Sequence[str] = (),
) -> Finding:
    """A finding of this rule."""
    return Finding(
        code=rule.code,
        name=rule.name,
        severity=severity,
        grade=grade,
        rounds=tuple(sorted({int(one) for one in rounds})),
        clients=tuple(clients),
        layers=tuple(layers),
        why=why,
        evidence=evidence,
        next=tuple(next),
    )


def short(number: float) -> float:
    """Rounded for evidence; what is not finite stays as it is."""
    return float(f"{float(number):.{DIGITS}g}")


def times(number: float) -> str:
    """'3.5 times', '120 times': as a person says a factor."""
    return f"{number:.1f} times" if number < 10 else f"{number:.0f} times"
