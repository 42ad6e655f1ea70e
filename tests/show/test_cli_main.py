"""The door of the command line: help, exit codes, and errors in one line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest
from recorded import participation, write_run

from fedvitals.errors import StoreError
from fedvitals.show.cli import command as commands
from fedvitals.show.cli import runs
from fedvitals.show.cli.command import NAMES, Command, load, parser_of
from fedvitals.show.cli.main import main
from fedvitals.store import SQLiteStore
from fedvitals.vocabulary import Run, Status

FEDVITALS = (sys.executable, "-m", "fedvitals")


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"]])
def test_help_lists_every_command(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Without arguments too: a stranger types the bare name first."""
    assert main(argv) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in NAMES)


def test_every_file_of_the_folder_is_a_command_or_serves_them() -> None:
    """A new command's file is in the list, and each is what a command must be."""
    folder = Path(str(commands.__file__)).parent
    shared = {"__init__", "main", "command", "options", "terminal", "live"}
    serving = {*shared, "trial", "trials", "searching", "verifying", "encoding"}
    assert {path.stem for path in folder.glob("*.py")} - serving == set(NAMES)
    for name in NAMES:
        module = load(name)
        assert isinstance(module, Command)
        assert module.name == name
        assert module.summary[0].islower()
        assert not module.summary.endswith(".")


@pytest.mark.parametrize("name", NAMES)
def test_every_command_helps_with_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`--help` exits 0 and ends with command lines that its own parser takes."""
    with pytest.raises(SystemExit) as done:
        main([name, "--help"])
    assert done.value.code == 0
    assert "\nexamples:\n  fedvitals " in capsys.readouterr().out
    for example in load(name).examples:
        words = example.split("#")[0].split("|")[0].split(">")[0].split()
        assert words[:2] == ["fedvitals", name]
        parser_of(load(name)).parse_args(words[2:])


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["shwo"], "fedvitals: there is no command 'shwo'; did you mean 'show'?\n"),
        (["--colour"], "fedvitals: there is no option '--colour'; see `fedvitals --help`\n"),
    ],
)
def test_an_unknown_word_gets_a_hint(argv: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line on stderr, nothing on stdout, exit code 2."""
    assert main(argv) == 2
    assert capsys.readouterr() == ("", line)


@pytest.mark.parametrize(
    "argv", [["run"], ["show", "x", "--round", "-1"], ["gc", "--older-than", "soon"], ["runs", "x"]]
)
def test_wrong_arguments_exit_2_in_one_line(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Not the whole usage: what is wrong, and where to look."""
    with pytest.raises(SystemExit) as done:
        main(argv)
    assert done.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"fedvitals {argv[0]}: ")
    assert said.count("\n") == 1
    assert f"fedvitals {argv[0]} --help" in said


def test_options_are_not_guessed() -> None:
    """An abbreviation that works today could mean another option tomorrow."""
    with pytest.raises(SystemExit):
        main(["gc", "--dry"])


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """The installed one."""
    from importlib.metadata import version

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"fedvitals {version('fedvitals')}\n"


def _failing(error: BaseException) -> Callable[[object], int]:
    def run(args: object) -> int:
        raise error

    return run


def test_our_errors_are_one_harmless_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A message with line ends and escapes in it is still one line, and the exit code is the error's."""
    monkeypatch.setattr(runs, "run", _failing(StoreError("run 'x\x1b[2J'\n  is damaged")))
    assert main(["runs"]) == 2
    assert capsys.readouterr().err == "fedvitals: run 'x\\x1b[2J' is damaged\n"


def test_ctrl_c_is_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As shells expect it, without a traceback."""
    monkeypatch.setattr(runs, "run", _failing(KeyboardInterrupt()))
    assert main(["runs"]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_a_bug_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not one of our errors comes out with its traceback."""
    monkeypatch.setattr(runs, "run", _failing(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        main(["runs"])


def test_a_name_that_the_terminal_has_no_letters_for_is_spelled_out(tmp_path: Path) -> None:
    """Where only ASCII can be written, other letters are escaped instead of ending the command."""
    run = Run("one", "one", Status.FINISHED, 0)
    with closing(SQLiteStore(tmp_path / "runs").create(run)) as journal:
        journal.append([participation("Zo\u00eb")])
    ascii_only = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run((*FEDVITALS, "show", "last"), capture_output=True, env=ascii_only, check=True)
    assert b"Zo\\xeb" in done.stdout


def test_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    """`fedvitals runs | head -0`: nothing on stderr, and the exit code of a broken pipe."""
    write_run(tmp_path / "runs")
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run((*FEDVITALS, "runs"), stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert done.stderr == b""
    assert done.returncode == 128 + signal.SIGPIPE


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("asked", [("runs",), ("show", "last"), ("doctor", "last", "--json")], ids=" ".join)
def test_output_that_finds_no_space_is_one_line(asked: tuple[str, ...], tmp_path: Path) -> None:
    """`fedvitals runs > full-disk`: exit 2, one line, and no second complaint when the interpreter ends."""
    write_run(tmp_path / "runs")
    with open("/dev/full", "w") as full:
        done = subprocess.run((*FEDVITALS, *asked), stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.stderr.splitlines() == [
        "fedvitals: the output could not be written: no space is left where it goes",
    ]
    assert done.returncode == 2


@pytest.mark.parametrize("closed", [1, 2])
def test_closed_streams_are_no_error(closed: int, tmp_path: Path) -> None:
    """`fedvitals show last >&-`, as a service may be started: the same exit code, and nothing said elsewhere."""
    write_run(tmp_path / "runs")
    done = subprocess.run(
        (*FEDVITALS, "show", "last"), capture_output=True, text=True, check=False, preexec_fn=lambda: os.close(closed)
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert bool(done.stdout) == (closed == 2)


@pytest.mark.parametrize(
    ("argv", "before", "after"),
    [
        (["--version"], {}, "passive"),
        (["--version"], {"OMP_WAIT_POLICY": "active"}, "active"),
        (["bench", "--help"], {}, None),
    ],
    ids=["asked to sleep", "the user's own wish", "measured as they come"],
)
def test_waiting_threads_sleep(
    argv: list[str], before: dict[str, str], after: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenMP is told before torch is there to listen; what the user says counts more."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(os, "environ", {**os.environ, **before} if before else {"PATH": ""})
    with suppress(SystemExit):  # --help
        main(argv)
    assert os.environ.get("OMP_WAIT_POLICY") == after
