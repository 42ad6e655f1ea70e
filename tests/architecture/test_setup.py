"""`script/setup`, with an interpreter that only writes down what it is asked: order, fallbacks, two at once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tree import ROOT

# Stands for python and for the .venv's python. FAIL: words of pip calls that fail; SLOW: seconds an install takes.
FAKE = """#!/usr/bin/env bash
case "$*" in
    "-c "*) exit 0 ;;
    "- 9") exec {python} - 9 ;;
    "-m venv"*) mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
    *"pip list"*) echo "${{INSTALLED:-}}" ;;
    *"pip install"*)
        echo "$*" >> pip.log
        sleep "${{SLOW:-0}}"
        for word in ${{FAIL:-}}; do case "$*" in *"$word"*) exit 1 ;; esac; done ;;
esac
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of what a set-up looks at, and the fake interpreter."""
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "script").mkdir()
    shutil.copy(ROOT / "script" / "setup", tmp_path / "script" / "setup")
    kernel = tmp_path / "script" / "kernel"
    kernel.write_text("#!/bin/sh\n", encoding="utf-8")
    kernel.chmod(0o755)
    fake = tmp_path / "python"
    fake.write_text(FAKE.format(python=sys.executable), encoding="utf-8")
    fake.chmod(0o755)
    return tmp_path


def _environment(project: Path, words: dict[str, str]) -> dict[str, str]:
    return os.environ | {"PYTHON": str(project / "python")} | words


def _setup(project: Path, **words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(project / "script" / "setup")],
        env=_environment(project, words),
        capture_output=True,
        text=True,
        check=False,
    )


def _installs(project: Path) -> list[str]:
    log = project / "pip.log"
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


def _torch_wishes(project: Path) -> list[str]:
    return [" ".join(line.split()[-1:]) for line in _installs(project) if "torch==" in line.split()[-1]]


def test_once_is_enough(project: Path) -> None:
    """A second set-up installs nothing and says nothing; a change of the pins installs again."""
    assert _setup(project).returncode == 0
    done = len(_installs(project))
    assert done == 2
    again = _setup(project)
    assert (again.returncode, again.stderr, len(_installs(project))) == (0, "", done)
    with (project / "constraints.txt").open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    assert _setup(project).returncode == 0
    assert len(_installs(project)) > done


def test_a_change_of_the_tools_settings_needs_no_set_up(project: Path) -> None:
    """What stands after the first [tool.] section of pyproject.toml is not about what is installed."""
    assert _setup(project).returncode == 0
    done = len(_installs(project))
    with (project / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write("\n[tool.other]\nline = 1\n")
    assert _setup(project).returncode == 0
    assert len(_installs(project)) == done


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the usual index has no CUDA builds")
def test_torch_is_looked_for_in_the_usual_place_first(project: Path) -> None:
    """The CPU build there; else from PyTorch's index; else whatever there is, and then it says so."""
    assert _setup(project).returncode == 0
    assert [wish.endswith("+cpu") for wish in _torch_wishes(project)] == [True]
    assert not any("--index-url" in line for line in _installs(project))

    (project / "pip.log").unlink()
    (project / ".venv" / ".fedvitals-setup").unlink()
    done = _setup(project, FAIL="+cpu")
    assert done.returncode == 0
    assert [wish.endswith("+cpu") for wish in _torch_wishes(project)] == [True, True, False]
    assert ["--index-url" in line for line in _installs(project)] == [False, True, False, False]
    assert "no CPU build" in done.stderr


def test_torch_that_is_there_is_kept(project: Path) -> None:
    """Whatever build it is, at the pinned version: a GPU's user put it there on purpose."""
    pin = next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch=="))
    assert _setup(project, INSTALLED=f"{pin}+cu130").returncode == 0
    assert _torch_wishes(project) == []


def test_after_a_failure_it_begins_afresh(project: Path) -> None:
    """A half-made environment is not taken for a whole one."""
    assert _setup(project, FAIL=".[dev,codecs]").returncode != 0
    assert not (project / ".venv" / ".fedvitals-setup").exists()
    (project / ".venv" / "bin" / "python").write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
    done = _setup(project)
    assert done.returncode == 0
    assert "setting up .venv" in done.stderr
    assert _setup(project).stderr == ""


def test_two_at_once_do_it_once(project: Path) -> None:
    """The second waits, finds everything done, and installs nothing."""
    command = [str(project / "script" / "setup")]
    environment = _environment(project, {"SLOW": "0.3"})
    both = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [one.communicate()[1] for one in both]
    assert [one.returncode for one in both] == [0, 0]
    assert len(_installs(project)) == 2
    assert sum("ready" in words for words in said) == 1


def test_an_old_python_is_refused_with_a_way_out(project: Path) -> None:
    """The message names what was found and what would be right."""
    (project / "python").write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    done = _setup(project)
    assert done.returncode == 2
    assert "Python 3.11 or newer" in done.stderr
    assert "PYTHON=" in done.stderr
    assert not (project / ".venv").exists()
