"""Findings to documents for programs and to coloured text for people, as pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fedvitals.diagnose.words import (
    WIDTH,
    Spoken,
    counted,
    labelled,
    parts,
    remarks,
    title,
    unseen,
    verdict,
)
from fedvitals.show.documents import run_document
from fedvitals.store.plain import plain
from fedvitals.vocabulary import Finding, Severity

if TYPE_CHECKING:
    from rich.text import Text

    from fedvitals.diagnose import Diagnosis
    from fedvitals.show.watching import Changes

STYLES = {Severity.CRITICAL: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "bold cyan"}
HEALTHY, UNSEEN = "bold green", "dim"
MOST_HEADINGS = 8
_RANKS = {severity: rank for rank, severity in enumerate(Severity)}


def diagnosis_document(diagnosis: Diagnosis, findings: Sequence[Finding], spoken: Spoken) -> dict[str, Any]:
    """What `doctor --json` prints: these findings of the diagnosis, and the codes that could not look."""
    return {
        "run": run_document(diagnosis.run),
        "findings": [finding_document(one, spoken) for one in findings],
        "not_observable": sorted(diagnosis.not_observable),
        "not_observable_why": dict(sorted(diagnosis.not_observable.items())),
    }


def finding_document(finding: Finding, spoken: Spoken) -> dict[str, Any]:
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity.value,
        "grade": finding.grade.value,
        "rounds": [int(number) for number in finding.rounds],
        "clients": list(finding.clients),
        "layers": list(finding.layers),
        "why": finding.why,
        "evidence": plain(finding.evidence),
        "next": [{"text": spoken(action.text), "safe": action.safe} for action in finding.next],
        "proof": None if finding.proof is None else plain(finding.proof),
        "symptoms": [finding_document(one, spoken) for one in finding.symptoms],
    }


def at_least(findings: Sequence[Finding], severity: Severity) -> list[Finding]:
    """Those that are so grave, or have a symptom that is."""
    return [one for one in findings if _RANKS[worst(one)] >= _RANKS[severity]]


def worst(finding: Finding) -> Severity:
    """The gravest of a finding and what follows from it."""
    return max((finding.severity, *map(worst, finding.symptoms)), key=lambda severity: _RANKS[severity])


def styled_diagnosis(
    diagnosis: Diagnosis, findings: Sequence[Finding], spoken: Spoken, *, accepted: int = 0, width: int = WIDTH
) -> Iterator[Text]:
    """These findings of the diagnosis, a blank line after each, and what is to be said of the whole."""
    from rich.text import Text

    for finding in findings:
        yield from styled_finding(finding, spoken, width)
        yield Text("")
    yield Text(summary(diagnosis, findings, accepted), style=HEALTHY if diagnosis.healthy else "bold")
    for line in unseen(diagnosis, width):
        yield Text(line, style=UNSEEN)


def styled_verdict(diagnosis: Diagnosis, most: int = MOST_HEADINGS) -> Iterator[Text]:
    """The short form, for the end of a training: a line a finding, then the verdict."""
    from rich.text import Text

    yield from map(styled_heading, diagnosis.findings[:most])
    if len(diagnosis.findings) > most:
        yield Text(f"... and {len(diagnosis.findings) - most} more", style=UNSEEN)
    yield Text(verdict(diagnosis), style=HEALTHY if diagnosis.healthy else "bold")


def styled_changes(changes: Changes, spoken: Spoken, width: int = WIDTH) -> Iterator[Text]:
    """What a look at a run that is going on has to say: nothing, when nothing changed."""
    from rich.text import Text

    for word, findings in (("new", changes.new), ("changed", changes.changed)):
        for finding in findings:
            yield Text(f"{word:<9}", style="bold").append_text(styled_heading(finding))
            yield from list(styled_finding(finding, spoken, width))[1:]
            yield Text("")
    for finding in changes.gone:
        yield Text("gone     ", style=HEALTHY).append_text(styled_heading(finding))
        yield Text("")
    if changes.last:
        yield Text(verdict(changes.diagnosis), style=HEALTHY if changes.diagnosis.healthy else "bold")
    elif changes.first and not changes:
        yield Text(f"{verdict(changes.diagnosis)}; the run is going on", style=UNSEEN)


def summary(diagnosis: Diagnosis, findings: Sequence[Finding], accepted: int) -> str:
    """The last line: what is shown, and how many known findings are not."""
    if not accepted:
        return verdict(diagnosis)
    return f"{counted(findings) if findings else 'nothing new'}; {accepted} known by the baseline, not shown"


def styled_finding(finding: Finding, spoken: Spoken, width: int = WIDTH) -> Iterator[Text]:
    from rich.text import Text

    yield styled_heading(finding)
    for label, text in parts(finding, spoken):
        for number, line in enumerate(labelled(label, text, width)):
            yield Text(line[:9], style="dim").append(line[9:], style="not dim") if number == 0 else Text(line)


def styled_heading(finding: Finding) -> Text:
    """`FL601 sign-flipped update   critical   rounds 5-12   client 3`."""
    from rich.text import Text

    severity, *rest = remarks(finding)
    heading = Text(title(finding), style="bold")
    heading.append("   ").append(severity, style=STYLES[finding.severity])
    for remark in rest:
        heading.append("   ").append(remark, style="not bold")
    return heading
