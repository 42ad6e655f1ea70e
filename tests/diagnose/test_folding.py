"""Causes and symptoms: nothing is lost, nothing grave is hidden."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fedvitals.diagnose.folding import fold
from fedvitals.vocabulary import Finding, Grade, Severity

CODES = ("FL402", "FL405", "FL412", "FL601")


def _finding(code: str, severity: Severity, rounds: tuple[int, ...] = (), clients: tuple[str, ...] = ()) -> Finding:
    grade = Grade.SUSPECT if severity is Severity.INFO else Grade.ACCUSED
    return Finding(code, "made up", severity, grade, rounds, clients, (), "because", {}, ())


def _flat(findings: Iterable[Finding]) -> Iterator[Finding]:
    for one in findings:
        yield one
        yield from _flat(one.symptoms)


FINDINGS = st.lists(
    st.builds(
        _finding,
        st.sampled_from(CODES),
        st.sampled_from(list(Severity)),
        st.lists(st.integers(0, 3), max_size=2).map(tuple),
        st.lists(st.sampled_from("ab"), max_size=2, unique=True).map(tuple),
    ),
    max_size=8,
)
EXPLAINS = st.dictionaries(st.sampled_from(CODES), st.frozensets(st.sampled_from(CODES)))


@given(FINDINGS, EXPLAINS)
def test_every_finding_stands_somewhere_once(findings: list[Finding], explains: dict[str, frozenset[str]]) -> None:
    """Whatever explains what, in circles too, each finding is told once."""
    told = [(one.code, one.severity, one.rounds, one.clients) for one in _flat(fold(findings, explains))]
    assert Counter(told) == Counter((one.code, one.severity, one.rounds, one.clients) for one in findings)


@given(FINDINGS, EXPLAINS)
def test_harm_is_never_hidden_under_information(findings: list[Finding], explains: dict[str, frozenset[str]]) -> None:
    """What stands under information is information."""
    for cause in fold(findings, explains):
        if cause.severity is Severity.INFO:
            assert {one.severity for one in _flat(cause.symptoms)} <= {Severity.INFO}


def test_of_two_that_explain_each_other_the_graver_stays() -> None:
    """The other one stands under it."""
    both = {"FL412": frozenset({"FL402"}), "FL402": frozenset({"FL412"})}
    (cause,) = fold([_finding("FL402", Severity.WARNING), _finding("FL412", Severity.CRITICAL)], both)
    assert (cause.code, [one.code for one in cause.symptoms]) == ("FL412", ["FL402"])


def test_a_cause_comes_first_and_spares_nobody() -> None:
    """What began earlier, or is about somebody else, is no symptom."""
    explains = {"FL601": frozenset({"FL402"})}
    cause = _finding("FL601", Severity.CRITICAL, (5,), ("a",))
    later = _finding("FL402", Severity.WARNING, (6,))
    earlier = _finding("FL402", Severity.WARNING, (4,))
    others = _finding("FL402", Severity.WARNING, (6,), ("b",))
    folded = fold([cause, later, earlier, others], explains)
    assert [one.code for one in folded] == ["FL601", "FL402", "FL402"]
    assert folded[0].symptoms == (later,)


def test_nothing_is_lost_in_a_circle() -> None:
    """Three that explain one another in turn: the gravest stays, the others stand under it."""
    circle = {"FL402": frozenset({"FL405"}), "FL405": frozenset({"FL412"}), "FL412": frozenset({"FL402"})}
    (cause,) = fold([_finding(code, Severity.WARNING) for code in circle], circle)
    assert len(list(_flat([cause]))) == 3


def test_an_accusation_stands_beside_what_is_wrong_with_the_run() -> None:
    """A layer that never moved says nothing of who sends mirrored updates; a rate too high for all does."""
    turned = Finding("FL601", "", Severity.WARNING, Grade.ACCUSED, (5,), ("3",), (), "", {}, ())
    layer = Finding("FL409", "", Severity.CRITICAL, Grade.CERTAIN, (0,), (), (), "", {}, ())
    explains = {code: frozenset({"FL601"}) for code in ("FL409", "FL412")}
    assert {one.code for one in fold([turned, layer], explains)} == {"FL601", "FL409"}
    assert [one.code for one in fold([turned, replace(layer, code="FL412")], explains)] == ["FL412"]
