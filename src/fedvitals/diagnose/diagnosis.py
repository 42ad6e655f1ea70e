"""A chart, looked at by every rule -> what is wrong, and what could not be seen."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.folding import fold
from fedvitals.diagnose.rule import CannotSee, Rule
from fedvitals.vocabulary import Finding, Level, Run

log = logging.getLogger("fedvitals")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is wrong with a run, gravest first, and what could not be observed: code -> why."""

    run: Run
    findings: tuple[Finding, ...]
    not_observable: Mapping[str, str]

    @property
    def healthy(self) -> bool:
        """Nothing at all was found."""
        return not self.findings

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
            _check_sight(rule, chart)
            found += rule.look(chart)
        except CannotSee as reason:
            unseen[rule.code] = str(reason)
        except Exception as error:
            log.warning("rule %s could not look at run %s", rule.code, chart.run.id, exc_info=True)
            unseen[rule.code] = f"the rule broke: {type(error).__name__}: {error}"
    explains = {rule.code: rule.explains for rule in rules}
    return Diagnosis(chart.run, fold(_as_reported(chart, found), explains), unseen)


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
