"""A chart, looked at by every rule -> what is wrong, and what could not be seen."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.folding import fold
from fedvitals.diagnose.rule import CannotSee, Rule
from fedvitals.vocabulary import Finding, Level, Run

log = logging.getLogger("fedvitals")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is wrong with a run, gravest first; what could not be observed, code -> why; the codes that did look."""

    run: Run
    findings: tuple[Finding, ...]
    not_observable: Mapping[str, str]
    looked: tuple[str, ...] = ()

    @property
    def healthy(self) -> bool:
        """Somebody looked, and nothing at all was found."""
        return bool(self.looked) and not self.findings

    def __str__(self) -> str:
        from fedvitals.diagnose.words import told

        return told(self)

    def _repr_html_(self) -> str:
        from fedvitals.diagnose.notebook import as_html

        return as_html(self)


def examine(chart: Chart, rules: Sequence[Rule]) -> Diagnosis:
    """Let every rule look. None of them can stop the others: one that breaks is "not observable", and logged."""
    found: list[Finding] = []
    unseen: dict[str, str] = {}
    for rule in rules:
        try:
            found += asked(rule, chart)
        except CannotSee as reason:
            unseen[rule.code] = str(reason)
        except Exception as error:
            log.warning("rule %s could not look at run %s", rule.code, chart.run.id, exc_info=True)
            unseen[rule.code] = f"the rule broke: {type(error).__name__}: {error}"
    explains = {rule.code: rule.explains for rule in rules}
    looked = tuple(rule.code for rule in rules if rule.code not in unseen)
    return Diagnosis(chart.run, fold(_as_reported(chart, found), explains), unseen, looked)


def asked(rule: Rule, chart: Chart) -> list[Finding]:
    """What one rule finds, when it has what it needs; CannotSee otherwise. Missing numbers are NaN, and numpy's
    warnings about them would stand in the middle of the user's training."""
    _check_sight(rule, chart)
    with np.errstate(all="ignore"):
        return list(rule.look(chart))


def nothing_observed(run: Run, rules: Sequence[Rule], reason: str) -> Diagnosis:
    """What is said of a run that could not be looked at."""
    return Diagnosis(run, (), {rule.code: reason for rule in rules})


def _check_sight(rule: Rule, chart: Chart) -> None:
    missing = sorted(rule.needs - chart.sights)
    if missing:
        at = " (level sealed: only sums are seen)" if chart.level is Level.SEALED else ""
        raise CannotSee(f"the run has no {', no '.join(missing)}{at}")


def _as_reported(chart: Chart, findings: Iterable[Finding]) -> list[Finding]:
    """At level `summary` the numbers about an update are its sender's own word."""
    if chart.level is not Level.SUMMARY:
        return list(findings)
    return [
        replace(one, why=f"{one.why} (self-reported)", evidence={**one.evidence, "self_reported": True})
        if one.code.startswith("FL6")
        else one
        for one in findings
    ]
