"""Every rule of ours keeps the contract of rules, on runs that no rule expects; and the codes are in order."""

from __future__ import annotations

import warnings

import pytest

from fedvitals.diagnose.awkward import NAMES, awkward_chart
from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.registry import FAMILIES, FAMILY_NAMES, RULES
from fedvitals.diagnose.rule import Rule, WrittenRule
from fedvitals.testing import RuleContract
from fedvitals.vocabulary import Action, Finding, Grade, Severity, Status


class TestOurRules(RuleContract):
    """Each of them."""

    @pytest.fixture(params=RULES, ids=lambda rule: rule.code)
    def rule(self, request: pytest.FixtureRequest) -> Rule:
        found: Rule = request.param
        return found


def test_codes_are_in_order_and_in_their_families() -> None:
    """Each once; a family's first figure is its rules'."""
    codes = [rule.code for rule in RULES]
    assert codes == sorted(set(codes))
    assert set(FAMILY_NAMES) == set(FAMILIES)
    for family, rules in FAMILIES.items():
        assert all(rule.code.startswith(family) for rule in rules)


def test_names_are_told_apart() -> None:
    """`explain` finds a rule by its name."""
    names = [rule.name for rule in RULES]
    assert len(set(names)) == len(names)


def test_the_awkward_runs_are_what_they_say() -> None:
    """Or the contract would be kept by looking at nothing."""
    charts = {name: awkward_chart(name) for name in NAMES}
    assert charts["cut off"].run.status is Status.CUT_OFF
    assert len(charts["cut off"].participations) >= 16
    assert len(charts["empty"].participations) == 0
    assert charts["one client"].clients == ("0",)
    assert [one.number for one in charts["missing rounds"].rounds] == [0, 3, 4, 900]
    assert not charts["no evaluations"].judged
    assert len(charts["clients that change names"].clients) == 24
    assert charts["healthy, sealed"].updates is None
    updates = charts["all updates equal"].updates
    assert updates is not None
    assert (updates.norms[:5] == updates.norms[0]).all()


GOOD = Finding("XY100", "made up", Severity.INFO, Grade.CERTAIN, (), (), (), "because", {"count": 1}, (Action("look"),))
PAGE = "Made up.\n\nSees: a\n\nMatters: b\n\nEvidence: c\n\nFalse alarms: d\n\nDo: e\n\nPapers: none"


def _rule(look: object, page: str = PAGE, code: str = "XY100", name: str = "made up") -> WrittenRule:
    return WrittenRule(code, name, page, look)  # type: ignore[arg-type]  # any callable will do


def _counting(chart: Chart, calls: list[int] = []) -> list[Finding]:  # noqa: B006  # impure on purpose
    calls.append(1)
    return [Finding(**{name: getattr(GOOD, name) for name in GOOD.__slots__} | {"why": f"asked {len(calls)} times"})]


def _spoiling(chart: Chart) -> list[Finding]:
    chart.participations.loss[:] += 1.0
    chart.participations.loss[:] = [float(number) for number in range(len(chart.participations))]
    return []


def _warning(chart: Chart) -> list[Finding]:
    warnings.warn("mean of nothing", RuntimeWarning, stacklevel=1)
    return []


def _breaking(chart: Chart) -> list[Finding]:
    raise IndexError("no such round")


def test_the_contract_takes_a_rule_that_keeps_it() -> None:
    """A made-up rule that is as it should be."""
    contract, rule = RuleContract(), _rule(lambda chart: [GOOD])
    contract.test_it_is_a_rule(rule)
    contract.test_its_page_says_what_a_reader_needs(rule)
    contract.test_it_answers_or_cannot_see(rule, "one round")
    contract.test_it_is_a_pure_function_of_the_chart(rule, "one round")
    assert rule.code == GOOD.code


@pytest.mark.parametrize(
    "rule",
    [
        _rule(_breaking),
        _rule(_warning),
        _rule(_counting),
        _rule(lambda chart: [GOOD], page="Made up."),
        _rule(lambda chart: [GOOD], code="FL6"),
        _rule(lambda chart: [GOOD], name="Made up."),
        _rule(lambda chart: [GOOD], code="XY101"),
    ],
    ids=["breaks", "warns", "impure", "no page", "no code", "no name", "another's finding"],
)
def test_the_contract_refuses_a_rule_that_breaks_it(rule: Rule) -> None:
    """Each way of breaking it is noticed by one of its tests."""
    contract = RuleContract()
    with pytest.raises((AssertionError, IndexError, RuntimeWarning)):
        _tried(contract, rule)


def _tried(contract: RuleContract, rule: Rule) -> None:
    contract.test_it_is_a_rule(rule)
    contract.test_its_page_says_what_a_reader_needs(rule)
    contract.test_it_answers_or_cannot_see(rule, "one round")
    contract.test_it_is_a_pure_function_of_the_chart(rule, "one round")


def test_the_contract_notices_a_rule_that_changes_the_chart() -> None:
    """What rules share must stay as it is; the chart of this test is thrown away."""
    awkward_chart.cache_clear()
    with pytest.raises(AssertionError, match="changed what all rules share"):
        RuleContract().test_it_is_a_pure_function_of_the_chart(_rule(_spoiling), "one round")
    awkward_chart.cache_clear()
