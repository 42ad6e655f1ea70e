"""Completion scripts: made from the commands, and understood by the shells themselves."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from fedvitals.show.cli.command import NAMES
from fedvitals.show.cli.completion import SCRIPTS, grammar
from fedvitals.show.cli.main import main

Capture = pytest.CaptureFixture[str]


def _shell(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed here")
    return path


def _bash_completes(line: str) -> list[str]:
    """What bash offers after this line, the cursor at its end."""
    words = line.split(" ")
    array = " ".join(f"'{word}'" for word in words)
    script = f"{SCRIPTS['bash'](grammar())}\nCOMP_WORDS=({array}); COMP_CWORD={len(words) - 1}; _fedvitals\n"
    script += 'printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run([_shell("bash"), "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize("shell", sorted(SCRIPTS))
def test_a_script_names_every_command_and_option(shell: str, capsys: Capture) -> None:
    """Generated from the parsers, so that it cannot fall behind."""
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    flags = {one.flag for verb in grammar() for one in verb.options}
    assert {"--older-than", "--layers", "--set"} <= flags
    assert all(name in script for name in NAMES)
    assert all((flag.removeprefix("--") if shell == "fish" else flag) in script for flag in flags)


@pytest.mark.parametrize("shell", sorted(SCRIPTS))
def test_the_shell_can_read_it(shell: str) -> None:
    """No syntax error in the shell that it is for."""
    script = SCRIPTS[shell](grammar())
    done = subprocess.run([_shell(shell), "-n"], input=script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("fedvitals sh", ["show"]),
        ("fedvitals show la", ["last"]),
        ("fedvitals show last --ro", ["--round"]),
        ("fedvitals completion z", ["zsh"]),
        ("fedvitals bench startu", ["startup"]),
        ("fedvitals gc --keep ", []),
    ],
)
def test_bash_offers_what_fits(line: str, offered: list[str]) -> None:
    """Commands first, then the command's own options and words; nothing where only the user knows."""
    assert _bash_completes(line) == offered


def test_an_unknown_shell_is_refused(capsys: Capture) -> None:
    """With the shells there are."""
    with pytest.raises(SystemExit):
        main(["completion", "tcsh"])
    said = capsys.readouterr().err
    assert all(shell in said for shell in SCRIPTS)
