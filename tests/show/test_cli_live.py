"""Progress while a training runs: lines in a pipe, a bar at a terminal, and pace that can be believed."""

from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console
from rich.progress import Progress as RichProgress
from rich.progress import TextColumn

from fedvitals.show.cli.live import MOST_LINES, BarProgress, LineProgress, Pace, progress
from fedvitals.train.job import Job
from fedvitals.train.progress import NoProgress, Progress

Capture = pytest.CaptureFixture[str]


def _train(told: Progress, rounds: int, failed: int = 0) -> None:
    """A training of so many rounds of 5 clients, half a second each, after two seconds of loading."""
    told.began(Job.from_dict({"train": {"rounds": rounds}}), 20, "vectorised", "small [dense] layers")
    for number in range(1, rounds + 1):
        told.round_done(number, rounds, 1.0 / number, 0.5, 5, failed, 2.0 + 0.5 * number)


def test_a_pipe_gets_a_line_a_round(capsys: Capture) -> None:
    """On stderr; nothing on stdout, which is for results."""
    _train(LineProgress(), 3)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "digits: 3 rounds, 5 of 20 clients each; executor vectorised (small [dense] layers)",
        "1/3 rounds  loss 1.000  accuracy 0.500",
        "2/3 rounds  loss 0.500  accuracy 0.500  10 clients/s  500 ms left",
        "3/3 rounds  loss 0.333  accuracy 0.500  10 clients/s",
    ]


def test_a_long_training_does_not_flood_a_log(capsys: Capture) -> None:
    """About thirty lines for a thousand rounds, the last one among them."""
    _train(LineProgress(), 1000)
    lines = capsys.readouterr().err.splitlines()[1:]
    assert len(lines) <= MOST_LINES + 1
    assert lines[-1].startswith("1000/1000 rounds")


def test_failures_are_counted_up(capsys: Capture) -> None:
    """So that a training that loses clients looks like one."""
    _train(LineProgress(), 2, failed=2)
    assert [line.split("  ")[3] for line in capsys.readouterr().err.splitlines()[1:]] == ["2 failed", "4 failed"]


def test_loading_does_not_count_as_pace() -> None:
    """The first round only sets the start; from the second on, speed and time left are those of rounds alone."""
    pace = Pace()
    assert pace.told(4, 10, 0, 100.0) == []
    assert pace.told(4, 10, 0, 101.0) == ["10 clients/s", "2.0 s left"]
    assert pace.told(4, 10, 0, 102.0) == ["10 clients/s", "1.0 s left"]
    assert pace.told(4, 10, 0, 103.0) == ["10 clients/s"]


def test_a_clock_that_stands_still_is_no_error() -> None:
    """Rounds of no time have no pace."""
    pace = Pace()
    assert [pace.told(3, 1, 0, 5.0) for _ in range(3)] == [[], [], []]


def test_a_terminal_gets_a_bar() -> None:
    """Rounds, loss, accuracy, speed and time left in one line; square brackets are no markup."""
    text = io.StringIO()
    console = Console(file=text, width=120)
    columns = (TextColumn("{task.description}", markup=False), TextColumn("{task.fields[facts]}", markup=False))
    with RichProgress(*columns, console=console, auto_refresh=False) as bar:
        _train(BarProgress(bar), 2)
        assert bar.tasks[0].completed == bar.tasks[0].total == 2
    assert "small [dense] layers" in text.getvalue()
    assert "2/2 rounds loss 0.500  accuracy 0.500  10 clients/s" in text.getvalue()


def test_the_fitting_kind_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quiet, piped or at a terminal; a terminal's thread is gone afterwards."""
    with progress(quiet=True) as told:
        assert isinstance(told, NoProgress)
    with progress() as told:
        assert isinstance(told, LineProgress)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress() as told:
        assert isinstance(told, BarProgress)
