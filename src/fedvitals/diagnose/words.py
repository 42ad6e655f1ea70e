"""Findings in plain text, as a terminal and `print` show them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fedvitals.vocabulary import Finding, Grade

if TYPE_CHECKING:
    from fedvitals.diagnose.diagnosis import Diagnosis

WIDTH = 100
MOST_NAMED = 8


def told(diagnosis: Diagnosis) -> str:
    """The whole diagnosis: findings, or that there are none, and what could not be seen."""
    blocks = ["\n".join(lines(finding)) for finding in diagnosis.findings]
    if not blocks:
        blocks = [f"nothing wrong was found in {diagnosis.run.name}"]
    return "\n\n".join([*blocks, *unseen(diagnosis)])


def heading(finding: Finding) -> str:
    """The first line: what, how bad, when, who, where."""
    parts = [f"{finding.code} {finding.name}", str(finding.severity)]
    if finding.grade is Grade.SUSPECT:
        parts.append("suspect")
    parts += _places(finding)
    return "   ".join(parts)


def lines(finding: Finding) -> Iterator[str]:
    """One finding as it is read: heading, why, what follows from it, proof, what to do, where to read more."""
    yield heading(finding)
    yield from labelled("why", finding.why)
    for symptom in finding.symptoms:
        yield from labelled("so", f"{symptom.code} {symptom.name}: {symptom.why}")
    if finding.proof is not None:
        yield from labelled("proof", str(finding.proof.get("text", dict(finding.proof))))
    for number, action in enumerate(finding.next):
        changes = "" if action.safe else " (changes the training)"
        yield from labelled("next" if number == 0 else "or", f"{action.text}{changes}")
    yield from labelled("more", f"fedvitals explain {finding.code}")


def labelled(label: str, text: str) -> Iterator[str]:
    """Text behind its label, wrapped with the label's margin."""
    yield from textwrap.wrap(
        text, WIDTH, initial_indent=f"  {label:<6} ", subsequent_indent=" " * 9, break_long_words=False
    )


def unseen(diagnosis: Diagnosis) -> list[str]:
    """One paragraph a reason: which rules could not look, and why."""
    reasons: dict[str, list[str]] = {}
    for code, reason in sorted(diagnosis.not_observable.items()):
        reasons.setdefault(reason, []).append(code)
    return [f"not observable: {', '.join(codes)}: {reason}" for reason, codes in reasons.items()]


def ranges(numbers: Sequence[int]) -> str:
    """'0-3, 7': whole numbers as a person writes them."""
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    pairs = [str(low) if low == high else f"{low}-{high}" for low, high in found]
    shown = pairs if len(pairs) <= MOST_NAMED else [*pairs[: MOST_NAMED - 1], "...", pairs[-1]]
    return ", ".join(shown)


def listed(names: Sequence[str]) -> str:
    """Names, the first few of many."""
    if len(names) <= MOST_NAMED:
        return ", ".join(names)
    return f"{', '.join(names[: MOST_NAMED - 1])} and {len(names) - MOST_NAMED + 1} more"


def _places(finding: Finding) -> Iterator[str]:
    if finding.rounds:
        yield f"round{'s' * (len(set(finding.rounds)) > 1)} {ranges(finding.rounds)}"
    if finding.clients:
        yield f"client{'s' * (len(finding.clients) > 1)} {listed(finding.clients)}"
    if finding.layers:
        yield f"layer{'s' * (len(finding.layers) > 1)} {listed(finding.layers)}"
