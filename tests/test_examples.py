"""The examples: each runs as it stands, quietly, leaves a finished run, and prints what it says it prints."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from fedvitals.diagnose import diagnose
from fedvitals.store import SQLiteStore
from fedvitals.vocabulary import Finding, Severity, Status

EXAMPLES = {path.stem: path for path in (Path(__file__).resolve().parents[1] / "examples").glob("*.py")}


TROUBLED = {"monitoring": {"failed"}, "debugging": {"rejected"}}  # examples whose clients do not all end well
RUNS = {"optimisation": 3}
ABOUT_CLIENTS = ("FL1", "FL2", "FL4", "FL6")


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
    assert [run.status for run in store.runs()] == [Status.FINISHED] * RUNS.get(name, 1)
    reader = store.open("last")
    outcomes = {one.outcome for one in reader.participations()}
    reader.close()
    assert outcomes == {"used"} | TROUBLED.get(name, set())


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


def test_differences_keep_what_weights_lose(ran: Callable[[str], Ran]) -> None:
    """Uncompressed, and compressed to a fortieth with feedback, it learns as well; with thinned weights it does not."""
    said = [line.split() for line in ran("optimisation").done.stdout.splitlines()]
    accuracy, uploaded = ({words[0]: float(words[place]) for words in said} for place in (2, 3))
    assert accuracy["differences"] > accuracy["uncompressed"] - 0.01
    assert accuracy["weights"] < accuracy["uncompressed"] - 0.05  # with feedback, as tutorial 153 has it
    assert uploaded["uncompressed"] > 40 * uploaded["differences"]
    assert uploaded["weights"] > 5 * uploaded["differences"]


def _found(store: SQLiteStore) -> list[Finding]:
    """Every finding of the run, symptoms too."""
    with closing(store.open("last")) as reader:
        found = diagnose(reader).findings
    return [one for finding in found for one in (finding, *finding.symptoms)]


def _accused(store: SQLiteStore) -> set[str]:
    """The clients against whom anything but information is said."""
    grave = [one for one in _found(store) if one.severity is not Severity.INFO and one.code.startswith(ABOUT_CLIENTS)]
    return {client for one in grave for client in one.clients}


def _named(store: SQLiteStore) -> set[tuple[str, str]]:
    return {(one.code, client) for one in _found(store) for client in one.clients}


def test_monitoring_names_the_slow_the_failing_and_the_diverging(ran: Callable[[str], Ran]) -> None:
    """Each by its client, the divergence as what follows from one of them, and nobody else is accused."""
    done, store = ran("monitoring")
    named = _named(store)
    assert named >= {("FL201", "4"), ("FL107", "7"), ("FL412", "2")}
    assert _accused(store) == {"2", "4", "7"}
    assert "so     FL402 divergence" in done.stdout


def test_debugging_finds_the_nan_and_the_explosion_and_survives_both(ran: Callable[[str], Ran]) -> None:
    """The two clients are named, their updates are left out in every round in which they are bad, the model learns."""
    done, store = ran("debugging")
    assert _named(store) >= {("FL405", "1"), ("FL412", "3")}
    assert _accused(store) == {"1", "3"}
    with closing(store.open("last")) as reader:
        out = [(one.client, one.round) for one in reader.participations() if one.outcome == "rejected"]
    assert sorted(out) == [("1", number) for number in range(15)] + [("3", number) for number in range(5, 15)]
    assert float(done.stdout.splitlines()[-1].split()[1]) > 0.8


def test_model_debugging_names_layers(ran: Callable[[str], Ran]) -> None:
    """The first layers' gradients vanish; the client whose first half stands still is named; every layer is listed."""
    done, store = ran("model_debugging")
    found = {one.code: one for one in _found(store)}
    assert "0.weight" in found["FL408"].layers
    assert "18.weight" not in found["FL408"].layers
    assert ("FL409", "5") in _named(store)
    assert _accused(store) == {"5"}
    assert sum("norm" in line and "zeros" in line for line in done.stdout.splitlines()) == 10
