"""The examples: each runs as it stands, quietly, leaves a finished run, and prints what it says it prints."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from fedvitals.store import SQLiteStore
from fedvitals.vocabulary import Status

EXAMPLES = {path.stem: path for path in (Path(__file__).resolve().parents[1] / "examples").glob("*.py")}


class Ran(NamedTuple):
    done: subprocess.CompletedProcess[str]
    store: SQLiteStore


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Ran]:
    """An example by name, run once from a folder of its own."""

    @cache
    def example(name: str) -> Ran:
        folder = tmp_path_factory.mktemp(name)
        environment = {**os.environ, "FEDVITALS_DIR": str(folder / "runs")}
        command = [sys.executable, str(EXAMPLES[name])]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        return Ran(done, SQLiteStore(folder / "runs"))

    return example


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_an_example_runs(name: str, ran: Callable[[str], Ran]) -> None:
    """Without a warning, from another folder; what it recorded can be read."""
    done, store = ran(name)
    assert (done.returncode, done.stderr) == (0, "")
    assert [run.status for run in store.runs()] == [Status.FINISHED]
    reader = store.open("last")
    outcomes = {one.outcome for one in reader.participations()}
    reader.close()
    assert outcomes == {"used"}


def test_the_minimal_loop_says_what_was_recorded(ran: Callable[[str], Ran]) -> None:
    """The added lines are the five it speaks of, the model learns, and each client of the last round is told of."""
    assert EXAMPLES["minimal_loop"].read_text(encoding="utf-8").count("  # added\n") == 5
    first, *clients = ran("minimal_loop").done.stdout.splitlines()
    assert first.endswith("after 10 rounds")
    assert float(first.split()[1]) > 0.8
    assert [line.partition(":")[0] for line in clients] == [f"client {number}" for number in range(5)]


def test_the_job_shows_its_attacker(ran: Callable[[str], Ran]) -> None:
    """The client with the fault is the first in the list, against the others; the next is not."""
    first, *clients = ran("run_a_job").done.stdout.splitlines()
    assert first.endswith("trained by the executor vectorised")
    assert clients[0].startswith("client 3: median cosine to the others -0.")
    assert "others +0." in clients[1]
