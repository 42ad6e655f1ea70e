"""The contract of rules as tests: subclass `RuleContract` in a test module and give it your rule.

    class TestMine(RuleContract):
        @pytest.fixture
        def rule(self) -> Rule:
            return MINE

Needs pytest, so nothing but tests imports this.
"""

from __future__ import annotations

import json
import re
import warnings
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest

from fedvitals.diagnose.awkward import NAMES, awkward_chart
from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.diagnosis import asked
from fedvitals.diagnose.pages import SECTIONS, sections
from fedvitals.diagnose.rule import CannotSee, Rule, Sight
from fedvitals.vocabulary import Finding, Grade, Severity

MOST_NAME_WORDS = 8
awkward = pytest.mark.parametrize("run", NAMES)


class RuleContract:
    """What every rule keeps; see `rule` for the door in words."""

    @pytest.fixture
    def rule(self) -> Rule:
        """The rule to be tried."""
        raise NotImplementedError("give the contract your rule: override the fixture `rule`")

    def test_it_is_a_rule(self, rule: Rule) -> None:
        """It has all that a rule has; its code is two letters and three figures, its name a few words in lower case."""
        assert isinstance(rule, Rule)
        assert re.fullmatch(r"[A-Z]{2}[1-9]\d{2}", rule.code), f"{rule.code!r} is no code such as FL601"
        assert rule.name == rule.name.strip().rstrip(".")
        assert 1 <= len(rule.name.split()) <= MOST_NAME_WORDS
        assert rule.name[0].islower()
        assert all(isinstance(need, Sight) for need in rule.needs)
        assert rule.code not in rule.explains

    def test_its_page_says_what_a_reader_needs(self, rule: Rule) -> None:
        """A title, and every section, in their order."""
        found = sections(rule)
        assert found.get(""), f"{rule.code} has no title line"
        assert [head for head in found if head] == list(SECTIONS)
        assert all(found[head] for head in SECTIONS)

    @awkward
    def test_it_answers_or_cannot_see(self, rule: Rule, run: str) -> None:
        """Whatever the run: findings, or CannotSee with a reason; no other exception, and no warning."""
        chart = awkward_chart(run)
        for finding in _asked(rule, chart) or ():
            _check(finding, rule, chart)

    @awkward
    def test_it_is_a_pure_function_of_the_chart(self, rule: Rule, run: str) -> None:
        """Twice the same chart gives twice the same findings, and the chart is left as it was."""
        chart = awkward_chart(run)
        before = _fingerprint(chart)
        first = repr(_asked(rule, chart))
        assert repr(_asked(rule, chart)) == first
        assert _fingerprint(chart) == before, f"{rule.code} changed what all rules share"


def _asked(rule: Rule, chart: Chart) -> list[Finding] | None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return asked(rule, chart)
        except CannotSee as blind:
            reason = str(blind).strip()
    assert reason, f"{rule.code} does not say why it cannot see"
    return None


def _check(finding: Finding, rule: Rule, chart: Chart) -> None:
    """A finding is what a program and a person expect of it."""
    assert (finding.code, finding.name) == (rule.code, rule.name)
    assert isinstance(finding.severity, Severity)
    assert isinstance(finding.grade, Grade)
    assert finding.grade is not Grade.SUSPECT or finding.severity is Severity.INFO, "a suspicion is only worth knowing"
    assert finding.why.strip()
    assert finding.next, f"{rule.code} does not say what to do"
    assert set(finding.clients) <= set(chart.clients) | {one.client for one in chart.failures}
    assert all(type(number) is int for number in finding.rounds), "rounds are plain numbers: int(...)"
    assert set(finding.rounds) <= {one.number for one in chart.rounds} | set(chart.participations.round.tolist())
    json.dumps(dict(finding.evidence))  # values that a program can check: plain ones


def _fingerprint(chart: Chart) -> int:
    """Of every array that rules share."""
    return hash(tuple(_arrays(chart.participations)) + tuple(_arrays(chart.updates)) + tuple(_arrays(chart.gradients)))


def _arrays(table: Any) -> list[bytes]:
    if table is None or not is_dataclass(table):
        return []
    values = (getattr(table, field.name) for field in fields(table))
    return [value.tobytes() for value in values if isinstance(value, np.ndarray)]
