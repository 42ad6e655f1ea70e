"""The commands that look into the store: runs, show and gc, on real runs."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from recorded import CLIENTS, HOSTILE, ROUNDS, write_run

from fedvitals.show.cli.main import main
from fedvitals.vocabulary import Participation, Status

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store with one finished run."""
    write_run(tmp_path / "runs")
    return tmp_path / "runs"


def _json(capsys: Capture, *argv: str) -> dict[str, Any]:
    assert main([*argv, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1
    return document


def test_runs_lists_newest_first(folder: Path, capsys: Capture) -> None:
    """Id, name, status, rounds, last loss and accuracy; one that was cut off says so."""
    write_run(folder, "digits-0", Status.RUNNING, age=60)
    runs = _json(capsys, "runs")["runs"]
    assert [one["id"] for one in runs] == ["digits-1", "digits-0"]
    assert [one["status"] for one in runs] == ["finished", "cut off"]
    newest = runs[0]
    assert newest | {"rounds": ROUNDS, "clients": 3, "failures": 1, "loss": 1 / 3, "accuracy": 0.7} == newest
    assert main(["runs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["run", "name", "status"]
    assert lines[1].startswith("digits-1")


def test_runs_can_be_limited_and_placed(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    """`--limit` takes the newest, `--dir` another folder."""
    write_run(folder, "digits-0", age=60)
    assert [one["id"] for one in _json(capsys, "runs", "--limit", "1")["runs"]] == ["digits-1"]
    assert _json(capsys, "runs", "--dir", str(tmp_path / "elsewhere"))["runs"] == []


def test_an_empty_store_says_what_to_do(capsys: Capture) -> None:
    """No table, no error: a line on stderr with the next command."""
    assert main(["runs"]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "fedvitals demo" in said.err


def test_a_damaged_run_is_named_and_does_not_hide_the_others(folder: Path, capsys: Capture) -> None:
    """The list goes on without it; JSON has it apart."""
    (folder / "broken").mkdir()
    (folder / "broken" / "run.db").write_bytes(b"not a database, but long enough to look like one" * 50)
    document = _json(capsys, "runs")
    assert [one["id"] for one in document["runs"]] == ["digits-1"]
    assert document["damaged"][0]["id"] == "broken"
    assert main(["runs"]) == 0
    assert "broken" in capsys.readouterr().err


def test_show_has_rounds_clients_and_failures(folder: Path, capsys: Capture) -> None:
    """In this order, below a header; nothing in it can move the terminal."""
    assert main(["show", "last"]) == 0
    shown = capsys.readouterr().out
    places = [shown.index(word) for word in ("digits-1", "\nrounds\n", "\nclients (", "\nfailures\n", "ValueError")]
    assert places == sorted(places)
    assert "\x1b" not in shown
    assert "[red]x\\x1b[2J" in shown
    assert "second line" not in shown


def test_show_gives_programs_the_records(folder: Path, capsys: Capture) -> None:
    """The vocabulary's own names, unescaped: JSON has its own escapes."""
    document = _json(capsys, "show", "digits")
    assert document["run"]["id"] == "digits-1"
    assert [one["number"] for one in document["rounds"]] == [0, 1, 2]
    assert document["rounds"][-1]["accuracy"] == pytest.approx(0.7)
    assert len(document["participations"]) == ROUNDS * len(CLIENTS)
    assert set(document["participations"][0]) == set(Participation._fields)
    assert document["failures"][0]["client"] == HOSTILE


def test_show_one_round(folder: Path, capsys: Capture) -> None:
    """Its participations and its failures, and a refusal for a round that there is not."""
    document = _json(capsys, "show", "last", "--round", "1")
    assert {one["round"] for one in document["participations"]} == {1}
    assert [one["number"] for one in document["rounds"]] == [1]
    assert document["failures"] == []
    assert main(["show", "last", "--round", "9"]) == 2
    assert capsys.readouterr().err == "fedvitals: --round 9: run digits-1 has no such round; it has 0 to 2\n"


def test_show_one_client_with_its_layers(folder: Path, capsys: Capture) -> None:
    """Its history over the rounds, a table of layers each; an unknown one is answered with who there is."""
    document = _json(capsys, "show", "last", "--client", "2", "--layers")
    assert [(one["client"], one["round"]) for one in document["layers"]] == [("2", 0), ("2", 1), ("2", 2)]
    assert [one["layer"] for one in document["layers"][0]["layers"]] == ["net.weight", "net.bias"]
    assert main(["show", "last", "--client", "2", "--layers"]) == 0
    assert capsys.readouterr().out.count("update of client 2 in round") == ROUNDS
    assert main(["show", "last", "--client", "3"]) == 2
    assert "has no such client" in capsys.readouterr().err


def test_show_layers_of_the_model(folder: Path, capsys: Capture) -> None:
    """Without a round or client: the global model's newest version, with its non-finite values."""
    layers = _json(capsys, "show", "last", "--layers")["layers"]
    assert len(layers) == 1
    assert (layers[0]["version"], layers[0]["layers"][1]["nonfinite"]) == (ROUNDS, 1)
    assert layers[0]["layers"][0]["norm"] == pytest.approx(0.0)


def test_an_unknown_run_is_refused_in_one_line(folder: Path, capsys: Capture) -> None:
    """Exit code 2, and the ids there are."""
    assert main(["show", "nope"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "digits-1" in said


def _aged(folder: Path, *ages_days: float) -> None:
    from recorded import STARTED_UNIX_NS

    now_s = (time.time_ns() - STARTED_UNIX_NS) // 10**9
    for index, days in enumerate(ages_days):
        write_run(folder, f"aged-{index}", age=int(days * 86_400) - now_s)


def test_gc_says_what_it_would_do_and_does_it(tmp_path: Path, capsys: Capture) -> None:
    """A dry run deletes nothing and names the same runs that the real one deletes."""
    _aged(tmp_path / "runs", 0, 10, 40)
    planned = _json(capsys, "gc", "--older-than", "30d", "--dry-run")
    assert [one["run"] for one in planned["removed"]] == ["aged-2"]
    assert len(_json(capsys, "runs")["runs"]) == 3
    assert main(["gc", "--older-than", "30d"]) == 0
    said = capsys.readouterr()
    assert "aged-2" in said.out
    assert said.err.startswith("1 run deleted, ")
    assert [one["id"] for one in _json(capsys, "runs")["runs"]] == ["aged-0", "aged-1"]


@pytest.mark.parametrize(
    ("argv", "left"),
    [
        (("--keep", "1"), ["aged-0"]),
        (("--max-gb", "0"), []),
        (("--max-gb", "0", "--keep", "2"), ["aged-0", "aged-1"]),
        (("--older-than", "2w"), ["aged-0", "aged-1"]),
        (("--older-than", "12h", "--keep", "2"), ["aged-0", "aged-1"]),
        ((), ["aged-0", "aged-1", "aged-2"]),
    ],
    ids=" ".join,
)
def test_gc_keeps_what_it_should(argv: tuple[str, ...], left: list[str], tmp_path: Path, capsys: Capture) -> None:
    """By number, by age, by size, and together; without a limit no run goes."""
    _aged(tmp_path / "runs", 0, 10, 40)
    assert main(["gc", *argv]) == 0
    capsys.readouterr()
    assert [one["id"] for one in _json(capsys, "runs")["runs"]] == left
