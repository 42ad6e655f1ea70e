"""Findings in plain text, as a terminal and `print` show them.

Names of clients and layers, and messages of exceptions, were written by others: all of it goes through `safe`.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from fedvitals.printable import safe
from fedvitals.vocabulary import Finding, Grade, Severity

if TYPE_CHECKING:
    from fedvitals.diagnose.diagnosis import Diagnosis

WIDTH = 100
MOST_NAMED = 8
MOST_TEXT = 2000
COMMANDS = ("next", "or", "more")  # labels behind which a command may stand
_RUN = re.compile(r"\bRUN\b")

Spoken = Callable[[str], str]  # an action's text, with the run's own name in it


def told(diagnosis: Diagnosis) -> str:
    """The whole diagnosis: findings, or that there are none, and what could not be seen."""
    spoken = naming(diagnosis.run.id)
    blocks = ["\n".join(lines(finding, spoken)) for finding in diagnosis.findings]
    return "\n\n".join([*blocks, "\n".join([verdict(diagnosis), *unseen(diagnosis)])])


def verdict(diagnosis: Diagnosis) -> str:
    """One line: how many findings of which severity, or that nothing is wrong, or that nothing could be seen."""
    name = safe(diagnosis.run.name)
    looked, blind = len(diagnosis.looked), len(diagnosis.not_observable)
    if diagnosis.findings:
        return f"{counted(diagnosis.findings)} in {name}"
    if not looked:
        return f"nothing could be observed in {name}"
    rest = f", {blind} could not see enough at level {diagnosis.run.level}" if blind else ""
    return f"nothing wrong was found in {name}: {looked} {'rule' if looked == 1 else 'rules'} looked{rest}"


def counted(findings: Sequence[Finding]) -> str:
    """`3 findings: 1 critical, 2 warning`."""
    counts = Counter(finding.severity for finding in findings)
    kinds = ", ".join(f"{counts[one]} {one}" for one in reversed(Severity) if counts[one])
    return f"{len(findings)} {'finding' if len(findings) == 1 else 'findings'}: {kinds}"


def heading(finding: Finding) -> str:
    """The first line: what, how bad, when, who, where."""
    return "   ".join([title(finding), *remarks(finding)])


def title(finding: Finding) -> str:
    return f"{finding.code} {safe(finding.name)}"


def remarks(finding: Finding) -> list[str]:
    """What follows the title: severity, grade where it is weak, rounds, clients, layers."""
    suspect = [str(finding.grade)] if finding.grade is Grade.SUSPECT else []
    return [str(finding.severity), *suspect, *_places(finding)]


def lines(finding: Finding, spoken: Spoken, width: int = WIDTH) -> Iterator[str]:
    """One finding as it is read: heading, why, what follows from it, proof, what to do, where to read more."""
    yield heading(finding)
    for label, text in parts(finding, spoken):
        yield from labelled(label, text, width)


def parts(finding: Finding, spoken: Spoken) -> Iterator[tuple[str, str]]:
    """What stands below a finding's heading: label and text."""
    yield "why", safe(finding.why, MOST_TEXT)
    for symptom in finding.symptoms:
        yield "so", f"{title(symptom)} ({symptom.severity}): {safe(symptom.why, MOST_TEXT)}"
    if finding.proof is not None:
        yield "proof", safe(finding.proof.get("text", dict(finding.proof)), MOST_TEXT)
    for number, action in enumerate(finding.next):
        changes = "" if action.safe else " (changes the training)"
        yield "next" if number == 0 else "or", f"{safe(spoken(action.text), MOST_TEXT)}{changes}"
    yield "more", spoken(f"fedvitals explain {finding.code}")


def naming(run: str) -> Spoken:
    """Puts the run's own name where an action says RUN."""
    return lambda text: _RUN.sub(lambda _: run, text)


def labelled(label: str, text: str, width: int = WIDTH) -> Iterator[str]:
    """Text behind its label, wrapped with the label's margin. A command is there to be copied: it stays in one line."""
    if label in COMMANDS and "fedvitals " in text:
        yield f"  {label:<6} {text}"
        return
    yield from textwrap.wrap(
        text,
        max(width, 40),
        initial_indent=f"  {label:<6} ",
        subsequent_indent=" " * 9,
        break_long_words=False,
        break_on_hyphens=False,  # a flag or a run's id must stay whole to be copied
    )


def unseen(diagnosis: Diagnosis, width: int = WIDTH) -> list[str]:
    """A line or two a reason: which rules could not look, and why."""
    reasons: dict[str, list[str]] = {}
    for code, reason in sorted(diagnosis.not_observable.items()):
        reasons.setdefault(safe(reason, MOST_TEXT), []).append(safe(code))
    told = [f"not observable: {', '.join(codes)}: {reason}" for reason, codes in reasons.items()]
    return [line for text in told for line in textwrap.wrap(text, max(width, 40), subsequent_indent="  ")]


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
    shown = [safe(name, 80) for name in names[:MOST_NAMED]]
    if len(names) <= MOST_NAMED:
        return ", ".join(shown)
    return f"{', '.join(shown[:-1])} and {len(names) - MOST_NAMED + 1} more"


def _places(finding: Finding) -> Iterator[str]:
    if finding.rounds:
        yield f"round{'s' * (len(set(finding.rounds)) > 1)} {ranges(finding.rounds)}"
    if finding.clients:
        yield f"client{'s' * (len(finding.clients) > 1)} {listed(finding.clients)}"
    if finding.layers:
        yield f"layer{'s' * (len(finding.layers) > 1)} {listed(finding.layers)}"
