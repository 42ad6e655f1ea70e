"""Breaks in clients' courses -> findings: who, since when, and how large the step was beside those before."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.evidence.accusing import HARMS, SCORED_CODES, about, accusations, check_comparable
from fedvitals.diagnose.evidence.breaks import Break
from fedvitals.diagnose.rule import Rule, Sight, WrittenRule
from fedvitals.diagnose.words import listed
from fedvitals.diagnose.writing import factor, short, write
from fedvitals.vocabulary import Action, Finding, Grade, Severity

Breaks = Callable[[Chart], Sequence[Break]]


def break_rule(
    code: str,
    name: str,
    page: str,
    *,
    kinds: Sequence[str],
    sentence: str,
    severity: Severity,
    next: Sequence[Action],
    breaks: Breaks,
    worded: Callable[[Break], str],
) -> WrittenRule:
    """A rule that looks for breaks first, and takes the scorer's word for who has none."""

    def look(chart: Chart) -> Iterator[Finding]:
        check_comparable(chart)
        found = chart.shared(breaks)
        yield from broken(chart, rule, found, f"{sentence}: ", worded, severity, next)
        named = chart.names([one.client for one in found])
        yield from accusations(chart, rule, kinds, sentence, severity, next, but=named)

    rule = WrittenRule(code, name, page, look, frozenset({Sight.SKETCHES}), (HARMS | SCORED_CODES) - {code})
    return rule


def broken(
    chart: Chart,
    rule: Rule,
    found: Sequence[Break],
    sentence: str,
    worded: Callable[[Break], str],
    severity: Severity,
    next: Sequence[Action],
) -> Iterator[Finding]:
    """One finding of all of them, if there are any; the first is told with its numbers."""
    if not found:
        return
    names = chart.names([one.client for one in found])
    also = f"; the same of {listed(names[1:])}" if len(names) > 1 else ""
    yield write(
        rule,
        severity,
        f"client {names[0]} {sentence}{found[0].since} {worded(found[0])}{also}",
        grade=Grade.ACCUSED,
        rounds=[number for one in found for number in one.rounds],
        clients=names,
        evidence={
            name: {
                "step": short(one.size),
                "before": short(one.before),
                "since_round": one.rounds[0],
                **({"until_round": one.rounds[-1]} if one.over else {}),
            }
            for name, one in zip(names, found, strict=True)
        },
        next=[about(one, names) for one in next],
    )


def against_its_own(one: Break) -> str:
    """In words, for updates that turned round."""
    return (
        f"they point against its own before, at a cosine of {one.size:.2f}, where its last had {one.before:.2f} to "
        "the one before it"
    )


def times_its_own(one: Break) -> str:
    """In words, for what became longer."""
    return (
        f"{factor(math.exp(one.size))} as long as before beside the others', where it had changed by "
        f"{factor(math.exp(one.before))} at most"
    )
