"""A comparison to words and to a document: pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from fedvitals.profile.comparison.compare import Compared, Comparison, Difference
from fedvitals.profile.comparison.summary import Summary
from fedvitals.show.documents import run_document
from fedvitals.show.tables import Table
from fedvitals.show.words import NOTHING, number, plural, safe, seconds, size

MOST_KEYS = 30


def comparison_document(comparison: Comparison, beyond: float | None) -> dict[str, Any]:
    """What `compare --json` prints."""
    document: dict[str, Any] = {
        "first": [run_document(one.run) for one in comparison.first],
        "others": [_compared(one) for one in comparison.others],
    }
    if beyond is not None:
        document["regressions"] = [asdict(one) for one in comparison.regressions(beyond)]
    return document


def _compared(one: Compared) -> dict[str, Any]:
    return {
        "runs": [run_document(run.run) for run in one.runs],
        "config": [{"key": key, "first": first, "other": other} for key, first, other in one.config],
        "differences": [asdict(difference) for difference in one.differences],
        "new_findings": list(one.new_findings),
        "gone_findings": list(one.gone_findings),
        "notes": list(one.notes),
    }


def names_of(runs: Sequence[Summary]) -> str:
    """A group of runs in words."""
    first = safe(runs[0].run.id)
    return first if len(runs) == 1 else f"{first} and {plural(len(runs) - 1, 'other seed')}"


def config_table(compared: Compared) -> Table:
    rows = tuple(
        (safe(key, 60), safe(_value(first), 60), safe(_value(other), 60))
        for key, first, other in compared.config[:MOST_KEYS]
    )
    return Table("what was set otherwise", ("key", "first", "this"), rows, frozenset({"key", "first", "this"}))


def _value(value: Any) -> str:
    return NOTHING if value is None else str(value)


def differences_table(compared: Compared) -> Table:
    rows = tuple(
        (
            one.measure,
            _amount(one.first, one.unit),
            _amount(one.other, one.unit),
            _change(one),
            _between(one),
            verdict(one),
        )
        for one in compared.differences
    )
    columns = ("", "first", "this", "change", "99% within", "verdict")
    return Table("what differs", columns, rows, frozenset({"", "verdict"}), spare=("99% within",))


def verdict(one: Difference) -> str:
    """Real and for the worse, real, or noise; and what tells."""
    if one.ratio is None:
        return one.basis
    if not one.real:
        same = "the same" if one.basis == "counted" else "within the noise"
        return same if one.basis in ("counted", "rounds", "seeds") else f"not known: {one.basis}"
    return f"{'worse' if one.worse else 'better'}, by its {one.basis}" if one.basis != "counted" else _better(one)


def _better(one: Difference) -> str:
    return "worse, counted" if one.worse else "better, counted"


def _change(one: Difference) -> str:
    return NOTHING if one.ratio is None else f"{one.ratio - 1.0:+.1%}"


def _between(one: Difference) -> str:
    return NOTHING if one.low is None or one.high is None else f"{one.low - 1.0:+.1%} to {one.high - 1.0:+.1%}"


def _amount(value: float | None, unit: str) -> str:
    if unit == "s":
        return seconds(value)
    if unit == "B":
        return size(value)
    return number(value, 4)


def lines_of(compared: Compared) -> list[tuple[str, str]]:
    """Findings that came and went, and notes."""
    lines = [("note", safe(note, 400)) for note in compared.notes]
    if compared.new_findings:
        lines.append(("new", f"findings {', '.join(compared.new_findings)}"))
    if compared.gone_findings:
        lines.append(("gone", f"findings {', '.join(compared.gone_findings)}"))
    return lines
