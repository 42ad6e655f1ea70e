"""Findings as a piece of HTML, for a notebook: a row a finding, the gravest first.

Whatever comes from a run is made printable and escaped. There is no script, no link and nothing to load; the colours
are set on the elements themselves, so the piece looks the same in any page, light or dark.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from fedvitals.diagnose.words import Spoken, naming, parts, remarks, title, unseen, verdict
from fedvitals.vocabulary import Finding, Severity

if TYPE_CHECKING:
    from fedvitals.diagnose.diagnosis import Diagnosis

_COLOURS = {Severity.CRITICAL: "#b3261e", Severity.WARNING: "#8a5a00", Severity.INFO: "#1f5f8b"}
_HEALTHY = "#1d6b3a"
_BOX = "font-family:system-ui,sans-serif;font-size:13px;line-height:1.45;max-width:60em"
_TABLE = "border-collapse:collapse;width:100%;margin:0;color:inherit;font:inherit"
_CELL = (
    "padding:.55em .7em .55em 0;vertical-align:top;text-align:left;overflow-wrap:anywhere;white-space:normal;"
    "border:0;border-top:1px solid rgba(128,128,128,.35)"
)
_BADGE = "color:#fff;border-radius:.9em;padding:.1em .7em;font-size:.85em;white-space:nowrap"
_FAINT = "opacity:.72"
_CODE = "font-family:ui-monospace,monospace;font-size:.95em;white-space:pre-wrap;overflow-wrap:anywhere"


def as_html(diagnosis: Diagnosis) -> str:
    """The whole diagnosis: a table of the findings, the verdict, and what could not be observed."""
    spoken = naming(diagnosis.run.id)
    rows = "".join(_row(finding, spoken) for finding in diagnosis.findings)
    table = f'<table style="{_TABLE}"><tbody>{rows}</tbody></table>' if rows else ""
    return f'<div style="{_BOX}">{_verdict(diagnosis)}{table}{_unseen(diagnosis)}</div>'


def _verdict(diagnosis: Diagnosis) -> str:
    colour = f"color:#fff;background:{_HEALTHY};padding:.1em .7em;border-radius:.9em;" if diagnosis.healthy else ""
    return f'<p style="margin:.4em 0"><b style="{colour}">{escape(verdict(diagnosis))}</b></p>'


def _row(finding: Finding, spoken: Spoken) -> str:
    severity, *places = remarks(finding)
    badge = f'<span style="{_BADGE};background:{_COLOURS[finding.severity]}">{escape(severity)}</span>'
    where = f'<br><span style="{_FAINT}">{escape(" · ".join(places))}</span>' if places else ""
    heading = f"<b>{escape(title(finding))}</b>{where}"
    texts = "".join(_part(label, text) for label, text in parts(finding, spoken))
    return (
        f'<tr style="background:transparent"><td style="{_CELL};width:1%">{badge}</td>'
        f'<td style="{_CELL}">{heading}<div style="margin-top:.3em">{texts}</div></td></tr>'
    )


def _part(label: str, text: str) -> str:
    shown = f'<code style="{_CODE}">{escape(text)}</code>' if "fedvitals " in text else escape(text)
    faint = f'<span style="{_FAINT};flex:0 0 3.5em">{escape(label)}</span>'
    return f'<div style="display:flex">{faint}<span style="flex:1;min-width:0">{shown}</span></div>'


def _unseen(diagnosis: Diagnosis) -> str:
    told = "".join(f"<div>{escape(line)}</div>" for line in unseen(diagnosis, width=10_000))
    if not told:
        return ""
    count = len(diagnosis.not_observable)
    words = f"{count} {'rule' if count == 1 else 'rules'} could not see enough"
    return f'<details style="margin:.5em 0;{_FAINT}"><summary>{words}</summary>{told}</details>'
