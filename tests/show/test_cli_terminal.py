"""Where words go: colour at a terminal only, plain and uncut lines in a pipe, JSON that every parser takes."""

from __future__ import annotations

import json
import math
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from recorded import write_run

from fedvitals.show.cli.terminal import print_json, print_table
from fedvitals.show.tables import Table
from fedvitals.store import SQLiteStore
from fedvitals.vocabulary import Status

Capture = pytest.CaptureFixture[str]
RUNS = (sys.executable, "-m", "fedvitals", "runs")


def _at_a_terminal(command: tuple[str, ...], **environment: str) -> str:
    """What a person would get on a terminal of 80 columns."""
    master, slave = pty.openpty()
    plain = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    terminal = {"TERM": "xterm-256color", "COLUMNS": "80", **environment}
    subprocess.run(command, stdout=slave, stdin=slave, env=plain | terminal, check=True)
    os.close(slave)
    with os.fdopen(master, "rb") as reader:
        return _drained(reader.fileno()).decode()


def _drained(descriptor: int) -> bytes:
    """Everything until the other end is gone, which Linux tells as an error."""
    gathered = b""
    try:
        while chunk := os.read(descriptor, 65_536):
            gathered += chunk
    except OSError:
        pass
    return gathered


def test_a_terminal_gets_styles_and_lines_that_fit(tmp_path: Path) -> None:
    """Bold headers; columns that can be spared are left out rather than broken."""
    write_run(tmp_path / "runs")
    shown = _at_a_terminal(RUNS)
    assert "\x1b[1m" in shown
    assert "accuracy" in shown
    assert "failures" not in shown


def test_no_color_is_respected(tmp_path: Path) -> None:
    """No colour with NO_COLOR, none on a terminal that has none."""
    write_run(tmp_path / "runs")
    show = (sys.executable, "-m", "fedvitals", "show", "last")
    assert "\x1b[1;36m" in _at_a_terminal(show)
    assert "36m" not in _at_a_terminal(show, NO_COLOR="1")
    assert "\x1b" not in _at_a_terminal(show, TERM="dumb")


def test_a_pipe_gets_plain_lines_of_any_width(capsys: Capture) -> None:
    """Nothing is cut or folded for want of a terminal, and markup is only text."""
    wide = "x" * 300
    print_table(Table("[b]title[/b]", ("a", "b"), (("[red]1", wide),), frozenset({"b"})))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "[b]title[/b]"
    assert lines[2].split() == ["[red]1", wide]


def test_long_tables_show_their_end(capsys: Capture) -> None:
    """The last rows, and how many are missing; all of them when asked."""
    table = Table("", ("n",), tuple((str(n),) for n in range(100)))
    print_table(table, most=40)
    shown = capsys.readouterr().out.split()
    assert "(60" in shown
    assert shown[-1] == "99"
    assert "59" not in shown
    print_table(table, most=None)
    assert capsys.readouterr().out.split()[1:] == [str(n) for n in range(100)]


def test_json_has_no_nan(capsys: Capture) -> None:
    """JSON has no word for it: null, wherever it stands."""
    print_json({"a": [math.nan, 1.5], "b": {"c": math.inf}, "d": (1, "x")}, one_line=True)
    text = capsys.readouterr().out
    assert json.loads(text) == {"schema_version": 1, "a": [None, 1.5], "b": {"c": None}, "d": [1, "x"]}
    assert text.count("\n") == 1


def test_ctrl_c_ends_a_training_cleanly(tmp_path: Path) -> None:
    """Exit code 130 without a traceback; the run is kept with what it had, and says that it did not finish."""
    job = tmp_path / "long.toml"
    job.write_text('[data]\nsource = "digits"\n[train]\nrounds = 3000\n', encoding="utf-8")
    command = (sys.executable, "-m", "fedvitals", "run", str(job))
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        while "rounds  " not in running.stderr.readline():
            assert running.poll() is None
        running.send_signal(signal.SIGINT)
        said = running.stderr.read()
    assert running.returncode == 130
    assert "Traceback" not in said
    assert said.endswith("fedvitals: interrupted\n")
    assert [one.status for one in SQLiteStore(tmp_path / "runs").runs()] == [Status.FAILED]
