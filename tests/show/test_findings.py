"""Findings as text, as documents and in a baseline; a watch with a clock of the test's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fedvitals.diagnose.diagnosis import Diagnosis
from fedvitals.diagnose.words import heading, lines, naming, told
from fedvitals.errors import FedvitalsError
from fedvitals.show.baseline import MOST_BYTES, read_baseline, unknown, write_baseline
from fedvitals.show.findings import at_least, finding_document, styled_changes, styled_diagnosis, styled_verdict, worst
from fedvitals.show.watching import Changes, changes, watch
from fedvitals.vocabulary import Action, Finding, Grade, Level, Run, Severity, Status

RUN = Run("digits-7", "digits", Status.FINISHED, 0)
FLIP = Finding(
    code="FL601",
    name="sign-flipped update",
    severity=Severity.CRITICAL,
    grade=Grade.ACCUSED,
    rounds=tuple(range(5, 13)),
    clients=("3",),
    layers=(),
    why="its update points against the cohort (cosine -0.94; the other 9 lie between 0.31 and 0.77)",
    evidence={"cosine": -0.94},
    next=(
        Action("fedvitals replay RUN --round 5 --without 3"),
        Action('aggregator = "trimmed-mean"', safe=False),
    ),
    proof={"text": "replayed round 5 without it: loss 1.02 instead of 2.87"},
)
SLOW = replace(FLIP, code="FL201", name="straggler", severity=Severity.WARNING, clients=("4",), proof=None)
HINT = replace(SLOW, code="FL103", name="dropout", severity=Severity.INFO, grade=Grade.SUSPECT, clients=("5", "1"))


def diagnosis(*findings: Finding, **values: object) -> Diagnosis:
    made = Diagnosis(RUN, findings, {}, looked=("FL201", "FL601"))
    return replace(made, **values)  # type: ignore[arg-type]  # a test's own values


def test_a_finding_reads_as_the_design_shows_it() -> None:
    """Heading, why, proof, next with the run's id, another way, more."""
    assert list(lines(FLIP, naming("digits-7"))) == [
        "FL601 sign-flipped update   critical   rounds 5-12   client 3",
        "  why    its update points against the cohort (cosine -0.94; the other 9 lie between 0.31 and 0.77)",
        "  proof  replayed round 5 without it: loss 1.02 instead of 2.87",
        "  next   fedvitals replay digits-7 --round 5 --without 3",
        '  or     aggregator = "trimmed-mean" (changes the training)',
        "  more   fedvitals explain FL601",
    ]


def test_coloured_text_has_the_same_words() -> None:
    """What a terminal shows in colour is what a pipe gets."""
    found = diagnosis(replace(FLIP, symptoms=(SLOW,)), HINT)
    shown = [text.plain.rstrip() for text in styled_diagnosis(found, found.findings, naming(RUN.id))]
    assert "\n".join(shown) == told(found)
    assert "  so     FL201 straggler (warning): " in told(found)


def test_a_long_reason_is_wrapped_and_a_command_is_not() -> None:
    """Prose keeps its margin; a command is there to be copied."""
    words = " ".join(["word"] * 60)
    long = replace(FLIP, why=words, next=(Action(f"fedvitals show RUN {'--client 3 ' * 20}"),), proof=None)
    shown = list(lines(long, naming("x"), width=60))
    assert max(len(line) for line in shown if line.startswith(("  why", "    "))) <= 60
    assert next(line for line in shown if line.startswith("  next")).count("--client 3") == 20
    assert " ".join(" ".join(line[9:] for line in shown if "word" in line).split()) == words


def test_what_strangers_wrote_moves_no_terminal() -> None:
    """Names and messages with control characters are spelled out, in plain text too."""
    hostile = replace(
        FLIP, clients=("a\x1b[2J",), layers=("net\r.weight",), why="b\x1b]0;x\x07", next=(Action("c\x9b"),)
    )
    shown = told(diagnosis(hostile))
    assert not [one for one in shown if not one.isprintable() and one != "\n"]
    assert "client a\\x1b[2J" in shown


def test_a_suspect_says_so_and_many_names_are_cut() -> None:
    """Grades that accuse nobody are named; a crowd is counted."""
    crowd = replace(HINT, clients=tuple(str(number) for number in range(30)))
    assert heading(crowd).endswith("suspect   rounds 5-12   clients 0, 1, 2, 3, 4, 5, 6 and 23 more")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (diagnosis(), "nothing wrong was found in digits: 2 rules looked"),
        (diagnosis(looked=()), "nothing could be observed in digits"),
        (diagnosis(FLIP, SLOW), "2 findings: 1 critical, 1 warning in digits"),
    ],
    ids=["healthy", "blind", "ill"],
)
def test_the_verdict_never_calls_unseen_fine(made: Diagnosis, said: str) -> None:
    """Healthy needs somebody who looked."""
    assert told(made).splitlines()[-1] == said
    assert made.healthy is (said.startswith("nothing wrong"))


def test_what_could_not_be_seen_is_said_with_its_reason() -> None:
    """At its level of sight, codes with one reason together."""
    sealed = replace(RUN, level=Level.SEALED)
    blind = diagnosis(run=sealed, not_observable={"FL601": "no sketches", "FL602": "no sketches", "FL402": "no losses"})
    assert told(blind).splitlines() == [
        "nothing wrong was found in digits: 2 rules looked, 3 could not see enough at level sealed",
        "not observable: FL402: no losses",
        "not observable: FL601, FL602: no sketches",
    ]


def test_the_short_form_has_a_line_a_finding() -> None:
    """At most so many, then how many more."""
    shown = [text.plain for text in styled_verdict(diagnosis(FLIP, SLOW, HINT), most=2)]
    assert shown == [heading(FLIP), heading(SLOW), "... and 1 more", told(diagnosis(FLIP, SLOW, HINT)).splitlines()[-1]]


def test_a_grave_symptom_counts_for_the_bar() -> None:
    """A cause is as grave as the gravest thing that follows from it."""
    cause = replace(SLOW, symptoms=(replace(HINT, symptoms=(FLIP,)),))
    assert worst(cause) is Severity.CRITICAL
    assert at_least([cause, SLOW, HINT], Severity.CRITICAL) == [cause]
    assert at_least([SLOW, HINT], Severity.INFO) == [SLOW, HINT]


def test_a_document_holds_what_json_can() -> None:
    """Numbers of numpy become numbers; symptoms are documents of their own."""
    import numpy as np

    odd = replace(FLIP, evidence={"cosine": np.float32(0.5), "count": np.int64(3)})
    document = finding_document(replace(odd, symptoms=(SLOW,)), naming("r"))
    assert json.loads(json.dumps(document))["evidence"] == {"cosine": 0.5, "count": 3}
    assert document["symptoms"][0]["code"] == "FL201"
    assert document["next"][0] == {"text": "fedvitals replay r --round 5 --without 3", "safe": True}


def test_a_baseline_knows_findings_by_what_they_are_about(tmp_path: Path) -> None:
    """Other rounds and numbers are the same finding; another client, layer or symptom is a new one."""
    path = tmp_path / "known.json"
    write_baseline(path, [replace(FLIP, symptoms=(HINT,)), SLOW])
    known = read_baseline(path)
    assert unknown([replace(FLIP, rounds=(99,), why="x"), SLOW, replace(HINT, clients=("1", "5"))], known) == []
    others = [
        replace(FLIP, clients=("4",)),
        replace(FLIP, layers=("0.weight",)),
        replace(FLIP, symptoms=(replace(HINT, code="FL402"),)),
    ]
    assert unknown(others, known) == others
    assert [one.name for one in tmp_path.iterdir()] == ["known.json"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"schema_version": 2, "findings": []}',
        b'{"schema_version": 1, "findings": {}, "x": 1',
        b'{"schema_version": 1, "findings": [{"code": 1, "clients": [], "layers": []}]}',
        b'{"schema_version": 1, "findings": [{"code": "FL101", "clients": "ab", "layers": []}]}',
        b'{"schema_version": 1, "findings": [3]}',
        b"[" * 100_000,
        b" " * (MOST_BYTES + 1),
    ],
    ids=range(11),
)
def test_a_damaged_baseline_is_refused_in_one_line(data: bytes, tmp_path: Path) -> None:
    """Whatever it holds; a missing one and a folder too."""
    path = tmp_path / "b.json"
    path.write_bytes(data)
    for place in (path, tmp_path / "missing", tmp_path):
        with pytest.raises(FedvitalsError, match=f"--baseline {place}: ") as caught:
            read_baseline(place)
        assert "\n" not in str(caught.value)


def test_a_baseline_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """And leaves nothing behind."""
    with pytest.raises(FedvitalsError, match="--write-baseline "):
        write_baseline(tmp_path / "no" / "such.json", [FLIP])
    (tmp_path / "folder").mkdir()
    with pytest.raises(FedvitalsError, match="--write-baseline "):
        write_baseline(tmp_path / "folder", [FLIP])
    assert [one.name for one in tmp_path.iterdir()] == ["folder"]


class Patient:
    """A run that shows these findings, one look after the other, each of which costs so much; then it has ended."""

    def __init__(self, cost_s: float, *looks: tuple[Finding, ...]) -> None:
        self.looks: Iterator[tuple[Finding, ...]] = iter(looks)
        self.left = len(looks)
        self.cost_s, self.cpu = cost_s, 0.0
        self.naps: list[float] = []

    def look(self) -> Diagnosis:
        self.cpu += self.cost_s
        self.left -= 1
        return diagnosis(*next(self.looks))

    def ended(self) -> bool:
        return self.left <= 1

    def watched(self) -> list[Changes]:
        return list(watch(self.look, self.ended, sleep=self.naps.append, cpu_s=lambda: self.cpu))


def test_a_watch_tells_what_is_new_changed_and_gone() -> None:
    """Nothing twice; the first and the last look are marked."""
    wider = replace(SLOW, clients=("4", "6"))
    seen = Patient(0.0, (SLOW,), (SLOW, FLIP), (wider, FLIP), (FLIP,), (FLIP,)).watched()
    assert [(one.new, one.changed, one.gone) for one in seen] == [
        ((SLOW,), (), ()),
        ((FLIP,), (), ()),
        ((), (wider,), ()),
        ((), (), (wider,)),
        ((), (), ()),
    ]
    assert [bool(one) for one in seen] == [True, True, True, True, False]
    assert [(one.first, one.last) for one in seen] == [(True, False), *[(False, False)] * 3, (False, True)]


@pytest.mark.parametrize(("cost_s", "waited_s"), [(0.0, 0.5), (0.001, 0.5), (0.02, 1.0), (0.2, 10.0)])
def test_looking_costs_at_most_a_fiftieth(cost_s: float, waited_s: float) -> None:
    """At most two looks a second, and fifty times as long a wait as the look took."""
    patient = Patient(cost_s, (), (), ())
    patient.left = 4  # it goes on through the first wait
    looks = watch(patient.look, patient.ended, sleep=patient.naps.append, cpu_s=lambda: patient.cpu)
    next(looks)
    next(looks)
    assert sum(patient.naps) == pytest.approx(waited_s)
    assert max(patient.naps) <= 0.5


def test_the_end_of_a_run_is_not_waited_for() -> None:
    """A dear look's long wait is cut short when the run ends meanwhile."""
    patient = Patient(1.0, (), ())
    patient.left = 3  # the first look is not the last but one: it goes on for three naps
    naps = patient.naps

    def ended() -> bool:
        return len(naps) >= 3

    assert len(list(watch(patient.look, ended, sleep=naps.append, cpu_s=lambda: patient.cpu))) == 2
    assert naps == [0.5, 0.5, 0.5]


def test_changes_are_told_in_words() -> None:
    """New ones in full, gone ones in a line, nothing when nothing changed, the verdict at the end."""
    spoken = naming("r")
    new = [text.plain for text in styled_changes(changes((), diagnosis(FLIP)), spoken)]
    assert new[0] == f"new      {heading(FLIP)}"
    assert any(line.startswith("  why") for line in new)
    gone = changes((FLIP,), diagnosis())
    assert [text.plain for text in styled_changes(gone, spoken)] == [f"gone     {heading(FLIP)}", ""]
    assert list(styled_changes(changes((FLIP,), diagnosis(FLIP)), spoken)) == []
    last = changes((), diagnosis())._replace(last=True)
    assert [text.plain for text in styled_changes(last, spoken)] == [
        "nothing wrong was found in digits: 2 rules looked"
    ]
