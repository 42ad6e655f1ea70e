"""`fedvitals bench`: which there are, and how their rows are shown."""

from __future__ import annotations

import json
import math

import pytest

from fedvitals.bench import startup
from fedvitals.bench.table import Row
from fedvitals.show.cli.bench import benches, rows_table
from fedvitals.show.cli.main import main

Capture = pytest.CaptureFixture[str]
ROWS = [
    Row("fast", "ratio", 21.5, 20.0, 23.0, "x", goal=20.0),
    Row("slow", "ratio", 1.2, 1.1, math.nan, "x", goal=1.02, at_least=False),
    Row("told", "seconds", 3.0, 3.0, 3.0, "s"),
]


def test_the_list_has_every_bench_and_its_question(capsys: Capture) -> None:
    """Modules with a `run`, not those that serve them."""
    assert "startup" in benches()
    assert "table" not in benches()
    assert all(benches().values())
    assert main(["bench"]) == 0
    assert "What it costs to start" in capsys.readouterr().out
    assert main(["bench", "--json"]) == 0
    assert {one["name"] for one in json.loads(capsys.readouterr().out)["benches"]} == set(benches())


def test_an_unknown_bench_is_refused(capsys: Capture) -> None:
    """With the nearest there is."""
    assert main(["bench", "startpu"]) == 2
    assert "did you mean 'startup'" in capsys.readouterr().err


def test_goals_are_judged_by_their_direction() -> None:
    """At least for some, at most for others; without a goal nothing is said."""
    table = rows_table(ROWS)
    assert [row[-2:] for row in table.rows] == [("at least 20", "met"), ("at most 1.020", "MISSED"), ("", "")]
    assert table.rows[0][3] == "20 .. 23"


def test_json_has_the_promised_keys(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    """Exactly those, in their order; NaN is null."""
    monkeypatch.setattr(startup, "run", lambda quick: ROWS if quick else [])
    assert main(["bench", "startup", "--quick", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["schema_version"], document["bench"]) == (1, "startup")
    assert list(document["rows"][0]) == ["case", "measure", "value", "low", "high", "unit", "goal"]
    assert document["rows"][1]["high"] is None


def test_startup_measures_whole_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Milliseconds of real starts, with bytecode on whatever the environment says."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr(startup, "CASES", startup.CASES[:1])
    rows = startup.run(quick=True)
    assert [(row.case, row.unit) for row in rows] == [("import fedvitals", "ms")]
    assert rows[0].low <= rows[0].value <= rows[0].high
