"""The examples: each runs as it stands, quietly, and leaves a finished run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fedvitals.store import SQLiteStore
from fedvitals.vocabulary import Status

EXAMPLES = sorted((Path(__file__).resolve().parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    """Without a warning, from another folder; what it recorded can be read."""
    done = subprocess.run([sys.executable, str(example)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    store = SQLiteStore(tmp_path / "runs")
    assert [run.status for run in store.runs()] == [Status.FINISHED]
    reader = store.open("last")
    outcomes = {one.outcome for one in reader.participations()}
    reader.close()
    assert outcomes == {"used"}
