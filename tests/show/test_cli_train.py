"""The commands that train: run and demo, with the real engine and a real store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedvitals.settings import Settings
from fedvitals.show.cli.main import main
from fedvitals.show.cli.options import next_command
from fedvitals.store import SQLiteStore
from fedvitals.vocabulary import Status

Capture = pytest.CaptureFixture[str]
KEYS = ["schema_version", "run", "rounds", "accuracy", "loss", "wall_s", "bytes_up", "bytes_down"]
KEYS += ["weights_sha256", "findings"]


@pytest.fixture
def job(tmp_path: Path) -> str:
    """A small job in a file."""
    path = tmp_path / "small.toml"
    text = '[data]\nsource = "digits"\nclients = 6\n[train]\nrounds = 2\nclients_per_round = 3\nepochs = 1\n'
    path.write_text(text, encoding="utf-8")
    return str(path)


def _last_line(capsys: Capture) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return document


def test_run_records_and_says_what_comes_next(job: str, tmp_path: Path, capsys: Capture) -> None:
    """Progress on stderr; result, place and next command on stdout; a finished run in the store."""
    assert main(["run", job]) == 0
    said = capsys.readouterr()
    assert "2/2 rounds" in said.err
    assert "accuracy" in said.out
    assert any(line.startswith("next ") for line in said.out.splitlines())
    assert [one.status for one in SQLiteStore(tmp_path / "runs").runs()] == [Status.FINISHED]


def test_run_ends_with_one_line_of_json(job: str, capsys: Capture) -> None:
    """With exactly the promised keys, and the run that `show last` then finds."""
    assert main(["run", job, "--json", "--quiet"]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    result = json.loads(said.out)
    assert list(result) == KEYS
    assert result | {"schema_version": 1, "rounds": 2} == result
    assert all(one["severity"] == "info" for one in result["findings"])
    assert len(result["weights_sha256"]) == 64
    assert main(["show", "last", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["run"]["id"] == result["run"]


def test_run_takes_changes(job: str, capsys: Capture) -> None:
    """`--set` changes keys of the job; a wrong one is refused before anything is loaded or written."""
    assert main(["run", job, "--quiet", "--json", "--set", "train.rounds=1", "--set", "seed=7"]) == 0
    assert _last_line(capsys)["rounds"] == 1
    assert main(["run", job, "--set", "train.ruonds=1"]) == 2
    assert capsys.readouterr().err.startswith("fedvitals: --set: train.ruonds")
    assert main(["run", job, "--set", "train.rounds"]) == 2
    assert "is not key=value" in capsys.readouterr().err


@pytest.mark.parametrize(("target", "says"), [("0.01", "was held"), ("0.999", "was not held before the last round")])
def test_run_says_what_came_of_its_target(job: str, capsys: Capture, target: str, says: str) -> None:
    """`train.stop_at` ends it early, or it has all its rounds: either is told."""
    assert main(["run", job, "--quiet", "--set", "train.rounds=4", "--set", f"train.stop_at={target}"]) == 0
    (line,) = (one for one in capsys.readouterr().out.splitlines() if one.startswith("target"))
    assert says in line


def test_run_names_keys_that_do_nothing(job: str, caplog: pytest.LogCaptureFixture) -> None:
    """What was set for another mode is told before the training; the run goes on."""
    assert main(["run", job, "--quiet", "--set", "server.staleness_bound=3"]) == 0
    assert 'server.staleness_bound = 3 does nothing here: it is for server.mode = "async"' in caplog.messages


def test_run_can_leave_no_trace(job: str, tmp_path: Path, capsys: Capture) -> None:
    """`--no-record` trains the same model and writes nothing."""
    assert main(["run", job, "--quiet", "--json"]) == 0
    recorded = _last_line(capsys)
    assert main(["run", job, "--quiet", "--json", "--no-record", "--dir", str(tmp_path / "none")]) == 0
    bare = _last_line(capsys)
    assert bare["run"] is None
    assert bare["weights_sha256"] == recorded["weights_sha256"]
    assert not (tmp_path / "none").exists()


def test_a_job_that_cannot_be_is_refused_in_one_line(tmp_path: Path, capsys: Capture) -> None:
    """The file, the key and what would be right; exit code 2, no traceback, no run."""
    path = tmp_path / "bad.toml"
    path.write_text("[train]\nrounds = 0\n", encoding="utf-8")
    assert main(["run", str(path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"fedvitals: {path}: train.rounds = 0 is out of range")
    assert said.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_the_demo_shows_the_three_that_went_wrong(tmp_path: Path) -> None:
    """Each injected fault's client is furthest from the others in what it spoils; the next command works as said."""
    environment = {key: value for key, value in os.environ.items() if key != "FEDVITALS_DIR"}
    demo = [sys.executable, "-m", "fedvitals", "demo", "--dir", str(tmp_path / "demo")]
    done = subprocess.run(demo, capture_output=True, text=True, check=True, env=environment)
    lines = {line.partition("  ")[0]: line.partition("  ")[2].split() for line in done.stdout.splitlines()}
    assert lines["lowest cosine to the others"][0] == "3"
    assert lines["highest loss at its first steps"][0] == "7"
    assert lines["longest training"][0] == "12"
    assert "client 3   sign-flip" in done.stdout
    assert "Traceback" not in done.stderr
    commands = [line.removeprefix("next").split() for line in done.stdout.splitlines() if " last" in line]
    assert [words[words.index("last") - 1] for words in commands] == ["doctor", "profile", "report", "show"]
    commands[2][commands[2].index("report.html")] = str(tmp_path / "report.html")
    doctor, profile, report, show = (
        subprocess.run(words, capture_output=True, text=True, check=False, env=environment) for words in commands
    )
    assert " in demo" in doctor.stdout
    assert doctor.returncode in (0, 1)
    assert profile.returncode == 0
    assert "bottleneck   client 12: train" in profile.stdout
    assert report.returncode == 0
    assert (tmp_path / "report.html").stat().st_size > 1e6
    assert (show.returncode, show.stdout.count("used")) == (0, 20)


def test_run_ends_with_the_verdict(job: str, tmp_path: Path, capsys: Capture) -> None:
    """A client that crashes is in the words, in the JSON and in the exit code of the doctor that is named next."""
    fault = '[[faults]]\nkind = "crash"\nclients = [0, 1, 2, 3]\n'
    Path(job).write_text(Path(job).read_text(encoding="utf-8") + fault, encoding="utf-8")
    assert main(["run", job, "--quiet"]) == 0
    said = capsys.readouterr().out
    assert "FL101 client raised   warning" in said
    assert "doctor last" in said
    assert "explain FL" in said
    assert main(["run", job, "--quiet", "--json"]) == 0
    found = {one["code"]: one for one in _last_line(capsys)["findings"]}
    assert set(found["FL101"]["clients"]) <= {"0", "1", "2", "3"}
    assert set(found["FL101"]) >= {"why", "evidence", "next", "proof", "symptoms"}
    assert main(["doctor", "last"]) == 1


def test_a_demo_that_cannot_be_recorded_says_so(tmp_path: Path, capsys: Capture) -> None:
    """A folder that is a file: one clear line instead of an empty table."""
    (tmp_path / "file").touch()
    assert main(["demo", "--quiet", "--dir", str(tmp_path / "file")]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.endswith("--dir names another folder\n")


@pytest.mark.parametrize(
    ("found", "argv0", "folder", "said"),
    [
        (True, "x", ".fedvitals", "fedvitals show last"),
        (True, "x", "runs", "fedvitals show last --dir runs"),
        (False, "bin/fedvitals", ".fedvitals", "bin/fedvitals show last"),
        (False, "bin/nothing", ".fedvitals", " -m fedvitals show last"),
    ],
)
def test_the_next_command_can_be_typed(
    found: bool, argv0: str, folder: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By name where the shell finds it, else by the path that this one was started with."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "fedvitals").touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDVITALS_DIR")
    monkeypatch.setenv("PATH", str(tmp_path / "bin") if found else "")
    monkeypatch.setattr(sys, "argv", [argv0])
    assert next_command("show last", Settings(dir=folder)).endswith(said)
