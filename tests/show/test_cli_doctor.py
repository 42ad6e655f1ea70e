"""`fedvitals doctor` and `fedvitals explain`, on a real run whose clients have names that would love to misbehave."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from recorded import HOSTILE, write_run

from fedvitals.diagnose.pages import SECTIONS
from fedvitals.diagnose.registry import FAMILIES, RULES
from fedvitals.show.cli.main import main

Capture = pytest.CaptureFixture[str]
KEYS = ["code", "name", "severity", "grade", "rounds", "clients", "layers", "why", "evidence", "next", "proof"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Path:
    """A store with one finished run, in which a client raised."""
    write_run(tmp_path / "runs")
    return tmp_path / "runs"


def _doctor(capsys: Capture, *argv: str, code: int = 1) -> str:
    assert main(["doctor", "last", "--select", "FL101", *argv]) == code
    return capsys.readouterr().out


def _json(capsys: Capture, *argv: str, code: int = 1) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(_doctor(capsys, *argv, "--json", code=code))
    return document


def test_a_finding_is_told_as_designed(capsys: Capture) -> None:
    """What, how bad, when and who; why; what to do, with the run's own id; where to read more. Nothing moves the
    terminal."""
    shown = _doctor(capsys)
    heading, *lines = shown.splitlines()
    labels = {line[2:9].strip(): line[9:] for line in lines if line.startswith("  ") and line[2] != " "}
    assert heading == "FL101 client raised   warning   round 2   client [red]x\\x1b[2J"
    assert set(labels) >= {"why", "next", "more"}
    assert "bad\\x1b[31m" in shown
    assert "\x1b" not in shown
    assert " show digits-1 --client " in labels["next"]
    assert labels["more"].endswith(" explain FL101")
    assert lines[-1] == "1 finding: 1 warning in digits"


def test_programs_get_the_schema(capsys: Capture) -> None:
    """The promised keys in their order, with names as they are: JSON has its own escapes."""
    document = _json(capsys)
    assert list(document)[:4] == ["schema_version", "run", "findings", "not_observable"]
    assert (document["schema_version"], document["run"]["id"], document["not_observable"]) == (1, "digits-1", [])
    (finding,) = document["findings"]
    assert list(finding) == [*KEYS, "symptoms"]
    assert (finding["rounds"], finding["clients"], finding["proof"]) == ([2], [HOSTILE], None)
    assert finding["evidence"]["count"] == 1
    assert finding["next"][0]["text"].startswith("fedvitals show digits-1 --client")


def test_not_observable_is_said_and_is_not_fine(tmp_path: Path, capsys: Capture) -> None:
    """A healthy run says so, with what could not be looked at; `never` and findings below the bar exit 0."""
    import fedvitals

    with fedvitals.start("empty", dir=str(tmp_path / "other")):
        pass
    assert main(["doctor", "last", "--dir", str(tmp_path / "other"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document["not_observable"]) == set(document["not_observable_why"])
    assert main(["doctor", "last", "--dir", str(tmp_path / "other"), "--select", "FL101"]) == 0
    assert capsys.readouterr().out == "nothing wrong was found in empty: 1 rule looked\n"


@pytest.mark.parametrize(
    ("bar", "code"), [("info", 1), ("warning", 1), ("critical", 0), ("never", 0)], ids=lambda value: str(value)
)
def test_the_exit_code_follows_the_bar(bar: str, code: int, capsys: Capture) -> None:
    """1 when a finding is as grave as asked, or graver."""
    _doctor(capsys, "--fail-on", bar, code=code)
    assert main(["doctor", "last", "--ignore", ",".join(FAMILIES), "--fail-on", bar]) == 0


def test_rules_are_chosen_by_code_family_and_name(capsys: Capture) -> None:
    """In any letters, with commas or one by one; what is ignored wins."""
    for words in ("fl101", "FL1", "client raised", "FL2,FL101"):
        assert main(["doctor", "last", "--select", words, "--json"]) == 1
        assert "FL101" in [one["code"] for one in json.loads(capsys.readouterr().out)["findings"]]
    assert _json(capsys, "--ignore", "FL2", "--ignore", "Client Raised", code=0)["findings"] == []


@pytest.mark.parametrize("argv", [("--select", "FL1O1"), ("--ignore", "client raises"), ("--select", "FL10")])
def test_an_unknown_rule_is_answered_with_the_nearest(argv: tuple[str, ...], capsys: Capture) -> None:
    """Exit code 2 and one line, before the run is looked at."""
    assert main(["doctor", "last", *argv]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"fedvitals: there is no rule or family {argv[1]!r}; did you mean ")
    assert said.err.count("\n") == 1


def test_a_run_that_is_not_there_cannot_be_looked_at(capsys: Capture) -> None:
    """Exit code 2, not 1: nothing was found because nobody looked."""
    assert main(["doctor", "nope"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_known_findings_are_counted_and_not_shown(tmp_path: Path, capsys: Capture) -> None:
    """With a baseline only what is new is shown and decides the exit code."""
    known = str(tmp_path / "known.json")
    assert main(["doctor", "last", "--select", "FL101", "--write-baseline", known]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"1 finding accepted; from now on: --baseline {known}\n")
    assert json.loads(Path(known).read_text(encoding="utf-8"))["findings"] == [
        {"code": "FL101", "clients": [HOSTILE], "layers": []}
    ]
    assert _doctor(capsys, "--baseline", known, code=0) == "nothing new; 1 known by the baseline, not shown\n"
    document = _json(capsys, "--baseline", known, code=0)
    assert (document["findings"], document["accepted"]) == ([], 1)


def test_colour_is_for_terminals() -> None:
    """None into a pipe; some where it is forced, unless NO_COLOR says no."""
    command = (sys.executable, "-m", "fedvitals", "doctor", "last", "--select", "FL101")
    plain = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR")}

    def shown(**more: str) -> str:
        return subprocess.run(command, env=plain | more, capture_output=True, text=True, check=False).stdout

    forced = {"FORCE_COLOR": "1", "TERM": "xterm-256color"}
    assert "\x1b" not in shown()
    assert "\x1b[1;33mwarning" in shown(**forced)
    assert "\x1b[1;33m" not in shown(**forced, NO_COLOR="1")


WATCHED = """
    import sys, fedvitals
    with fedvitals.start("watched", dir=sys.argv[1], resources_every_s=0.0) as run:
        def fail(number, client):
            try:
                with run.round(number) as rnd, rnd.client(client):
                    raise ValueError("broken " + client)
            except ValueError:
                pass
            run.diagnose()  # everything so far is on disk
            print("on disk", flush=True)
        fail(0, "one")
        sys.stdin.readline()
        fail(1, "two")
        sys.stdin.readline()
"""


def _python(code: str, *argv: str) -> subprocess.Popen[str]:
    """A process that is talked to by its standard input."""
    command = [sys.executable, "-u", "-c", textwrap.dedent(code), *argv]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _told(process: subprocess.Popen[str], word: str = "\n") -> None:
    assert process.stdin is not None
    process.stdin.write(word)
    process.stdin.flush()


def test_a_run_that_goes_on_is_watched_to_its_end(tmp_path: Path) -> None:
    """What is new is told once, when it is there; the end of the run ends the watch, with the verdict."""
    training = _python(WATCHED, str(tmp_path / "live"))
    assert training.stdout is not None
    assert training.stdout.readline() == "on disk\n"
    command = (sys.executable, "-u", "-m", "fedvitals", "doctor", "last", "--dir", str(tmp_path / "live"))
    doctor = subprocess.Popen([*command, "--watch", "--select", "FL101"], stdout=subprocess.PIPE, text=True)
    assert doctor.stdout is not None
    assert doctor.stdout.readline() == "new      FL101 client raised   warning   round 0   client one\n"
    _told(training)
    assert training.stdout.readline() == "on disk\n"
    _told(training)
    assert training.wait() == 0
    training.communicate()
    rest = doctor.stdout.read()
    assert doctor.wait() == 1
    doctor.stdout.close()
    headings = [line for line in rest.splitlines() if " client raised   " in line]
    assert headings == ["new      FL101 client raised   warning   round 1   client two"]
    assert rest.splitlines()[-1].endswith(" in watched")


def test_a_watch_can_be_interrupted(tmp_path: Path) -> None:
    """Ctrl-C: exit code 130, one line, and the run goes on."""
    training = _python(WATCHED, str(tmp_path / "live"))
    assert training.stdout is not None
    assert training.stdout.readline() == "on disk\n"
    command = (sys.executable, "-u", "-m", "fedvitals", "doctor", "last", "--dir", str(tmp_path / "live"))
    doctor = subprocess.Popen(
        [*command, "--watch", "--json", "--select", "FL101"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert doctor.stdout is not None
    assert [one["code"] for one in json.loads(doctor.stdout.readline())["findings"]] == ["FL101"]
    doctor.send_signal(signal.SIGINT)
    _, said = doctor.communicate()
    assert (doctor.returncode, said) == (130, "fedvitals: interrupted\n")
    assert training.poll() is None
    training.communicate("\n\n")
    assert training.returncode == 0


def test_the_doctor_works_without_torch() -> None:
    """A run can be examined on a machine that never trains."""
    code = "import sys; from fedvitals.show.cli.main import main; main(sys.argv[1:]); print('torch' in sys.modules)"
    command = (sys.executable, "-c", code, "doctor", "last", "--json")
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_a_page_is_explained_by_code_and_by_name(capsys: Capture) -> None:
    """Every section of it; JSON has the same words."""
    for word in ("FL101", "fl101", "client raised"):
        assert main(["explain", word]) == 0
        shown = capsys.readouterr().out
        assert shown.startswith("FL101 client raised\n")
        assert all(f"\n{head}" in shown for head in SECTIONS)
    assert main(["explain", "FL101", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert list(document["sections"]) == list(SECTIONS)


def test_the_index_has_every_code_a_line(capsys: Capture) -> None:
    """By family; as JSON with every page."""
    assert main(["explain", "--all"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line.startswith("  ")] == [rule.code for rule in RULES]
    assert [line.split()[0] for line in lines if line.startswith("FL")] == list(FAMILIES)
    assert main(["explain", "--all", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["findings"]) == len(RULES)


def test_a_family_is_explained_by_its_codes(capsys: Capture) -> None:
    """A line each, as in the index; as JSON their pages."""
    assert main(["explain", "fl6"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "FL6 integrity"
    assert [line.split()[0] for line in lines[1:]] == [rule.code for rule in FAMILIES["FL6"]]
    assert main(["explain", "FL6", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["findings"]
    assert [one["code"] for one in found] == [rule.code for rule in FAMILIES["FL6"]]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("fl1O1",), "'FL101'"),
        (("signflip",), "'sign-flipped update'"),
        (("gradients",), "'exploding gradients' or 'vanishing gradients'"),
        (("zebra",), "explain --all"),
        ((), "explain what?"),
        (("FL101", "--all"), "explain what?"),
    ],
)
def test_what_cannot_be_explained_is_refused_in_one_line(argv: tuple[str, ...], said: str, capsys: Capture) -> None:
    """Exit code 2, with the nearest code or what would be right."""
    assert main(["explain", *argv]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
