"""The view of a diagnosis in a notebook: complete, escaped, and with nothing in it that runs or loads."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fedvitals.diagnose.diagnosis import Diagnosis
from fedvitals.vocabulary import Action, Finding, Grade, Run, Severity, Status

RUN = Run("digits-7", "digits", Status.FINISHED, 0)
FINDING = Finding(
    "FL405",
    "non-finite values",
    Severity.CRITICAL,
    Grade.CERTAIN,
    (2, 3),
    ("3",),
    ("0.weight",),
    "40 of its 2,410 values are no numbers",
    {},
    (Action("fedvitals show RUN --client 3"),),
)
TAGS = {"div", "p", "b", "table", "tbody", "tr", "td", "span", "br", "code", "details", "summary"}


def _parsed(diagnosis: Diagnosis) -> ET.Element:
    return ET.fromstring(diagnosis._repr_html_().replace("<br>", "<br/>"))


def _text(element: ET.Element) -> str:
    return " ".join("".join(element.itertext()).split())


def test_everything_that_the_text_says_is_in_it() -> None:
    """Code, name, severity, places, why, what follows, what to do with the run's id, and what was not seen."""
    symptom = replace(FINDING, code="FL402", name="divergence", why="the loss is no number")
    made = Diagnosis(RUN, (replace(FINDING, symptoms=(symptom,)),), {"FL601": "no sketches"}, ("FL405",))
    shown = _text(_parsed(made))
    for words in (
        "1 finding: 1 critical in digits",
        "FL405 non-finite values",
        "rounds 2-3 · client 3 · layer 0.weight",
        "40 of its 2,410 values",
        "FL402 divergence (critical)",
        "fedvitals show digits-7 --client 3",
        "not observable: FL601: no sketches",
    ):
        assert words in shown


def test_severities_differ_in_colour() -> None:
    """Each has a badge of its own; a healthy run is green, an unseen one is not."""
    pages = [Diagnosis(RUN, (replace(FINDING, severity=one),), {}, ("FL405",))._repr_html_() for one in Severity]
    colours = {page.partition("background:#")[2][:6] for page in pages}
    assert len(colours) == len(Severity)
    healthy, blind = Diagnosis(RUN, (), {}, ("FL405",)), Diagnosis(RUN, (), {"FL405": "x"})
    assert "background:#" in healthy._repr_html_()
    assert "background:#" not in blind._repr_html_()


@given(hostile=st.text() | st.sampled_from(["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "&lt;"]))
def test_nothing_that_a_stranger_wrote_becomes_markup(hostile: str) -> None:
    """Whatever names and messages hold: the elements are ours, with no attribute but `style`, and nothing is loaded."""
    finding = replace(
        FINDING, name=hostile, why=hostile, clients=(hostile,), layers=(hostile,), next=(Action(hostile),)
    )
    made = Diagnosis(replace(RUN, name=hostile), (finding,), {hostile: hostile}, ("FL405",))
    for element in _parsed(made).iter():
        assert element.tag in TAGS
        assert set(element.attrib) <= {"style"}
        assert "url(" not in element.attrib.get("style", "")
