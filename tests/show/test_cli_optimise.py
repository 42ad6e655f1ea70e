"""`fedvitals optimise`: real trials, on the virtual clock, in a real store."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedvitals.settings import Settings
from fedvitals.show.cli import searching
from fedvitals.show.cli.main import main
from fedvitals.show.cli.trials import run_apart
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
rounds = 6
lr = 0.5
epochs = 4
batch_size = 8
[execute]
executor = "vectorised"
workers = 1
clock = "virtual"
[network]
profile = "lan"
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.toml"
    path.write_text(JOB, encoding="utf-8")
    return path


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same trainings, without starting a Python for each."""

    def trained(job: Job, settings: Settings, within_s: float | None = None) -> str:
        return str(train(job, settings=settings).run_id)

    monkeypatch.setattr(searching, "run_apart", trained)


def _words(tmp_path: Path, job: Path, *more: str) -> list[str]:
    places = ["--dir", str(tmp_path / "runs"), "--out", str(tmp_path / "better")]
    return ["optimise", str(job), *places, *more]


def _runs(tmp_path: Path) -> list[Status]:
    return [one.status for one in open_store(Settings(dir=str(tmp_path / "runs"))).runs()]


@pytest.mark.usefixtures("in_this_process")
def test_a_search_gives_a_front_whose_files_do_what_it_says(tmp_path: Path, job: Path, capsys: Capture) -> None:
    """Each point has a job file that trains to just its accuracy; and some way sends less than the job as it is."""
    words = _words(tmp_path, job, "--target", "accuracy=0.4", "--trials", "4", "--json")
    assert main(words) == 0
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    own, *others = document["trials"]
    assert (document["schema_version"], document["reached"], own["values"]) == (1, True, {"job": "as it is"})
    assert len(others) == 4
    assert all(one["reached"] for one in document["trials"] if one["front"])
    points = [one for one in document["trials"] if one["front"]]
    assert min(one["against"]["wire_bytes"] for one in points) < 0.6
    for one in points:
        found = Job.load(one["file"])
        assert found.name == "small"
        result = train(found, settings=Settings(mode="off"))
        assert result.accuracy == one["accuracy"] >= 0.4
        assert result.bytes_up + result.bytes_down == one["wire_bytes"]
    assert sorted(str(path) for path in (tmp_path / "better").iterdir()) == sorted(one["file"] for one in points)
    assert "Pareto front" in (tmp_path / "runs" / "small-optimise.html").read_text(encoding="utf-8")


def test_a_search_that_was_killed_goes_on_where_it_was(tmp_path: Path, job: Path, capsys: Capture) -> None:
    """With kill -9, when its third trial begins: what was finished is taken from the store, the rest is run once."""
    words = _words(tmp_path, job, "--target", "accuracy=0.25", "--trials", "2")
    command = [sys.executable, "-m", "fedvitals", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as search:
        assert search.stderr is not None
        lines = [search.stderr.readline() for _ in range(3)]
        os.killpg(search.pid, signal.SIGKILL)
    assert [line.split("]")[0] for line in lines] == [
        "[the job as it is",
        "[group 1/1, rung 1/2: 1/2",
        "[group 1/1, rung 1/2: 2/2",
    ]
    assert search.returncode == -signal.SIGKILL
    assert main(words) == 0
    shown = capsys.readouterr()
    assert [("there already" in line) for line in shown.err.splitlines()[:3]] == [True, True, False]
    assert "point-1.toml" in shown.out
    before = _runs(tmp_path)
    assert before.count(Status.FINISHED) == 3
    assert set(before) <= {Status.FINISHED, Status.CUT_OFF}
    assert main([*words, "--budget", "0.000000001s"]) == 0  # all is there: nothing is left to take time
    again = capsys.readouterr()
    assert again.out == shown.out
    assert _runs(tmp_path) == before


@pytest.mark.usefixtures("in_this_process")
def test_a_budget_ends_the_search_and_says_what_was_not_tried(tmp_path: Path, job: Path, capsys: Capture) -> None:
    """Before the job itself is done there is no answer; later, what is there is told."""
    words = _words(tmp_path, job, "--target", "accuracy=0.25")
    assert main([*words, "--budget", "0.000000001s"]) == 1
    shown = capsys.readouterr()
    assert "not tried   1 trial, for want of time" in shown.out
    assert "the job as it is, and every other way" in shown.out
    assert "--budget was over before the job as it is was done" in shown.err
    assert not (tmp_path / "better").exists()
    assert main([*words, "--trials", "1"]) == 0
    capsys.readouterr()
    assert main([*words, "--trials", "3", "--budget", "0.000000001s", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["trials"]) == 2
    assert len(document["not_tried"]) == 2
    assert document["not_tried"][1] == "train.clients_per_round=10, 3 rounds"


def test_a_trial_that_takes_too_long_is_ended(tmp_path: Path, job: Path) -> None:
    """Nothing of it counts as finished."""
    with pytest.raises(TimeoutError, match="not done"):
        run_apart(Job.load(job), Settings(dir=str(tmp_path / "runs")), within_s=0.01)
    assert Status.FINISHED not in _runs(tmp_path)


@pytest.mark.usefixtures("in_this_process")
def test_a_target_out_of_reach_exits_with_one(tmp_path: Path, job: Path, capsys: Capture) -> None:
    """It says the best that was seen, and what to try; no job file is written."""
    assert main(_words(tmp_path, job, "--target", "accuracy=100%", "--trials", "1", "--quiet")) == 1
    shown = capsys.readouterr()
    assert "--target accuracy=1 was not reached: the best was 0." in shown.err
    assert "try a larger train.rounds" in shown.err
    assert "did not reach it" in shown.out
    assert not (tmp_path / "better").exists()


@pytest.mark.usefixtures("in_this_process")
def test_a_trial_that_fails_is_told_and_costs_only_itself(tmp_path: Path, job: Path, capsys: Capture) -> None:
    """Twice as many clients than there are: only the data knows that."""
    rows = np.random.default_rng(0).normal(size=(120, 8)).astype(np.float32)
    classes = (rows[:, 0] > 0).astype(np.int64)
    np.savez(
        tmp_path / "four.npz",
        x_train=rows[:100],
        y_train=classes[:100],
        x_test=rows[100:],
        y_test=classes[100:],
        client=np.arange(100) % 4,
    )
    source = f'source = "{tmp_path / "four.npz"}"\npartition = "natural"\nclients = 0'
    job.write_text(JOB.replace('source = "digits"', source).replace("lr =", "clients_per_round = 3\nlr ="))
    words = _words(tmp_path, job, "--target", "accuracy=0.4", "--trials", "3")
    assert main(words) == 0
    shown = capsys.readouterr()
    assert "failed   train.clients_per_round=6: train.clients_per_round = 6, but" in shown.out
    assert main([*words, "--json", "--quiet"]) == 0
    problems = [one["problem"] for one in json.loads(capsys.readouterr().out)["trials"]]
    assert [one is None for one in problems] == [True, True, True, False]


def test_a_search_without_records_is_refused(
    tmp_path: Path, job: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first trial."""
    monkeypatch.setenv("FEDVITALS_MODE", "off")
    assert main(_words(tmp_path, job, "--target", "accuracy=0.5", "--quiet")) == 2
    assert 'mode = "off" records nothing' in capsys.readouterr().err


def test_a_job_that_cannot_be_trained_is_refused(tmp_path: Path, job: Path, capsys: Capture) -> None:
    """By what is wrong with it, and not by a search without results."""
    job.write_text(JOB + '[codec]\nup = "quantise:8"\n', encoding="utf-8")
    assert main(_words(tmp_path, job, "--target", "accuracy=0.5", "--quiet")) == 2
    assert "did you mean 'quantize'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--target", "accuracy=1.5", "above 0, at most 1"),
        ("--target", "accuracy=nan", "above 0, at most 1"),
        ("--target", "loss=0.1", "'loss=0.1' is no target"),
        ("--target", "0.9", "'0.9' is no target"),
        ("--budget", "10", "'10' is no time; right is a number and s, min or h, as in 10min"),
        ("--budget", "0min", "'0min' is no time"),
        ("--budget", "soon", "'soon' is no time"),
        ("--trials", "0", "at least 1"),
    ],
)
def test_what_makes_no_sense_is_refused(job: Path, capsys: Capture, option: str, value: str, said: str) -> None:
    """By argparse, with the option's name and what would be right."""
    with pytest.raises(SystemExit, match="2"):
        main(["optimise", str(job), "--target", "accuracy=0.5", option, value])
    error = capsys.readouterr().err
    assert f"argument {option}" in error
    assert said in error


def test_what_is_in_vain_is_refused_before_anything_runs(tmp_path: Path, job: Path, capsys: Capture) -> None:
    """Too few evaluations to hold a target, too many trials, a folder that is a file."""
    short = tmp_path / "short.toml"
    short.write_text(JOB.replace("rounds = 6", "rounds = 6\nevaluate_every = 3"), encoding="utf-8")
    assert main(_words(tmp_path, short, "--target", "accuracy=0.5")) == 2
    assert "train.evaluate_every = 3 has 2; right is at least train.rounds = 9" in capsys.readouterr().err
    assert main(_words(tmp_path, job, "--target", "accuracy=0.5", "--trials", "1001")) == 2
    assert "--trials 1001 is out of range" in capsys.readouterr().err
    (tmp_path / "better").write_text("taken", encoding="utf-8")
    for out in (tmp_path / "better", tmp_path / "better" / "still"):
        assert main([*_words(tmp_path, job, "--target", "accuracy=0.5"), "--out", str(out)]) == 2
        assert f"{tmp_path / 'better'} is not a folder" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
