"""`fedvitals compare` and `fedvitals sweep`: real jobs, on the virtual clock, in a real store."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedvitals.settings import Settings
from fedvitals.show.cli.main import main
from fedvitals.store import open_store
from fedvitals.train.engine import train
from fedvitals.train.job import Job
from fedvitals.vocabulary import Status

Capture = pytest.CaptureFixture[str]
JOB = """
name = "small"
[data]
source = "digits"
[train]
rounds = 8
epochs = 1
[execute]
executor = "sequential"
clock = "virtual"
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.toml"
    path.write_text(JOB, encoding="utf-8")
    return path


def _run(folder: Path, job: Path, name: str, **changes: object) -> None:
    planned = Job.load(str(job)).replaced({"name": name, **changes})
    train(planned, settings=Settings(dir=str(folder)))


def test_a_regression_exits_with_one(tmp_path: Path, job: Path, capsys: Capture) -> None:
    """Beyond the share that was asked for; within it, or without asking, with zero."""
    folder = str(tmp_path / "runs")
    _run(tmp_path / "runs", job, "before")
    _run(tmp_path / "runs", job, "after", **{"train.epochs": 9})
    words = ["compare", "before", "after", "--dir", folder]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "train.epochs" in shown
    assert "worse, by its rounds" in shown
    assert main([*words, "--fail-on-regression", "5%"]) == 1
    assert "worse by more than 5%" in capsys.readouterr().err
    assert main(["compare", "after", "before", "--dir", folder, "--fail-on-regression", "5%"]) == 0
    capsys.readouterr()
    assert main([*words, "--fail-on-regression", "0.05", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["others"][0]["config"] == [
        {"key": "name", "first": "before", "other": "after"},
        {"key": "train.epochs", "first": 1, "other": 9},
    ]
    assert {one["measure"] for one in document["regressions"]} >= {"round time"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["compare", "before"], "given 1 run; right are 2 to 50"),
        (["compare", "before", "nobody"], "nobody"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    tmp_path: Path, job: Path, capsys: Capture, words: list[str], said: str
) -> None:
    """With one line that says what would be right."""
    _run(tmp_path / "runs", job, "before")
    capsys.readouterr()
    assert main([*words, "--dir", str(tmp_path / "runs")]) == 2
    assert said in capsys.readouterr().err


def test_a_share_is_a_number(capsys: Capture) -> None:
    """Or argparse says what is."""
    with pytest.raises(SystemExit, match="2"):
        main(["compare", "a", "b", "--fail-on-regression", "much"])
    assert "right is for example 5% or 0.05" in capsys.readouterr().err


def test_a_sweep_tries_every_combination_once(tmp_path: Path, job: Path, capsys: Capture) -> None:
    """A table and a picture; a second sweep takes what is there, and runs only what is new."""
    folder, picture = tmp_path / "runs", tmp_path / "sweep.html"
    words = ["sweep", str(job), "--dir", str(folder), "--picture", str(picture)]
    assert main([*words, "--set", "train.batch_size=16,64"]) == 0
    shown = capsys.readouterr()
    assert [line.split()[0] for line in shown.out.splitlines()[2:]] == ["16", "64"]
    page = picture.read_text(encoding="utf-8")
    assert "Pareto front" in page
    assert "<script src=" not in page
    assert len(open_store(Settings(dir=str(folder))).runs()) == 2
    assert main([*words, "--set", "train.batch_size=16,64", "--set", "seed=1", "--json", "--quiet"]) == 0
    capsys.readouterr()
    assert len(open_store(Settings(dir=str(folder))).runs()) == 4
    assert main([*words, "--set", "train.batch_size=64", "--json"]) == 0
    again = capsys.readouterr()
    assert "there already" in again.err
    trial = json.loads(again.out)["trials"][0]
    assert trial["values"] == {"train.batch_size": "64"}
    assert trial["wire_bytes"] > 0
    assert trial["front"] is True


def test_a_sweep_that_was_killed_goes_on_where_it_was(tmp_path: Path, job: Path, capsys: Capture) -> None:
    """With kill -9, when its second trial begins: the first is not run again, the others are, and each once."""
    words = ["sweep", str(job), "--dir", str(tmp_path / "runs"), "--set", "train.batch_size=16,64,128"]
    command = [sys.executable, "-m", "fedvitals", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as sweep:
        assert sweep.stderr is not None
        lines = [sweep.stderr.readline(), sweep.stderr.readline()]
        os.killpg(sweep.pid, signal.SIGKILL)
    assert [line.split()[0] for line in lines] == ["[1/3]", "[2/3]"]
    assert sweep.returncode == -signal.SIGKILL
    assert main([*words, "--json"]) == 0
    shown = capsys.readouterr()
    assert [("there already" in line) for line in shown.err.splitlines()[:3]] == [True, False, False]
    assert [one["problem"] for one in json.loads(shown.out)["trials"]] == [None] * 3
    statuses = [one.status for one in open_store(Settings(dir=str(tmp_path / "runs"))).runs()]
    assert statuses.count(Status.FINISHED) == 3
    assert set(statuses) <= {Status.FINISHED, Status.CUT_OFF}


def test_a_trial_that_fails_costs_only_itself(tmp_path: Path, job: Path, capsys: Capture) -> None:
    """Its row says why; when all fail the command does."""
    words = ["sweep", str(job), "--dir", str(tmp_path / "runs"), "--quiet", "--json"]
    assert main([*words, "--set", "data.min_rows=8,5000"]) == 0
    good, bad = json.loads(capsys.readouterr().out)["trials"]
    assert good["problem"] is None
    assert "ended with code 2" in bad["problem"]
    assert main([*words, "--set", "data.min_rows=5000"]) == 2


@pytest.mark.parametrize(
    ("set_", "said"),
    [
        ([], "needs what to vary"),
        (["--set", "train.batch_size="], "names no values"),
        (["--set", "train.batch_size=,"], "names no values"),
        (["--set", "=3"], "names no values"),
        (["--set", "train.lr=0.1", "--set", "train.lr=0.2"], "names train.lr again"),
        (["--set", "train.batchsize=3"], "did you mean 'batch_size'"),
        (["--set", "train.batch_size=8,much"], "train.batch_size"),
        (["--set", "seed=" + ",".join(map(str, range(1001)))], "right are at most 1,000"),
    ],
)
def test_a_sweep_of_nothing_is_refused(tmp_path: Path, job: Path, capsys: Capture, set_: list[str], said: str) -> None:
    """Before anything runs."""
    assert main(["sweep", str(job), "--dir", str(tmp_path / "runs"), *set_]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
