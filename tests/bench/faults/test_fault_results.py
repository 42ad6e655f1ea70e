"""The fault bench keeps what it found, goes on where it was, and writes its page."""

from __future__ import annotations

import argparse
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from fedvitals.bench.faults import measuring
from fedvitals.bench.faults.cells import Cell
from fedvitals.bench.faults.design import quick
from fedvitals.bench.faults.judging import Line, Named
from fedvitals.bench.faults.page import drawn, left_out, text
from fedvitals.bench.faults.playing import play
from fedvitals.bench.faults.problems import FOLDER_VARIABLE
from fedvitals.bench.faults.results import Results, rules_version
from fedvitals.bench.faults.summary import WAYS, summary
from fedvitals.errors import FedvitalsError
from fedvitals.show.cli import bench as command

CELLS = [
    Cell("digits", "iid", 30, 1.0, "sign-flip", bad="3", from_round=5),
    Cell("digits", "iid", 10, 1.0, "label-flip", bad="1", seed=1),
    Cell("digits", "natural", 10, 1.0, "backdoor", bad="1", from_round=5),
    Cell("digits", "dirichlet-0.1", 10),
    Cell("fashion", "dirichlet-0.1", 10, 0.5),
]


def _line(cell: Cell, version: str = "v1", found: bool = True) -> Line:
    bad = cell.bad_clients()
    end = bad if found else ()
    named = {way: Named(end, dict.fromkeys(end, cell.from_round)) for way in WAYS}
    codes = {"FL601": list(end)} if found and bad else {}
    return Line(cell, version, {one: [cell.from_round] for one in bad}, {}, named, codes, {})


@pytest.fixture
def filled(tmp_path: Path) -> Results:
    results = Results(tmp_path / "some" / "faults.jsonl")
    for cell in CELLS:
        results.add(_line(cell))
    return results


def test_what_was_kept_is_read_back(filled: Results) -> None:
    """And a later line of a cell replaces the earlier."""
    filled.add(_line(CELLS[0], "v2", found=False))
    again = Results(filled.path)
    assert again.lines == filled.lines
    assert [line.version for line in again.of(CELLS)] == ["v2", "v1", "v1", "v1", "v1"]


def test_only_what_is_missing_is_played(filled: Results) -> None:
    """Lines that other rules have judged are played again when that is asked for."""
    more = [*CELLS, Cell("synthetic")]
    assert filled.missing(more, "v1", redo=False) == [more[-1]]
    assert filled.missing(more, "v2", redo=False) == [more[-1]]
    assert filled.missing(more, "v2", redo=True) == more
    assert filled.missing(more, "v1", redo=True) == [more[-1]]


def test_a_line_that_was_cut_off_is_dropped(filled: Results) -> None:
    """The bench goes on after it; what is no result at all is an error that says where."""
    whole = filled.path.read_text()
    filled.path.write_text(whole + '{"cell": {"prob')
    again = Results(filled.path)
    assert len(again.lines) == len(CELLS)
    again.add(_line(Cell("synthetic")))
    assert len(Results(filled.path).lines) == len(CELLS) + 1
    filled.path.write_text("[1]\n" + whole)
    with pytest.raises(FedvitalsError, match="line 1 is not a result"):
        Results(filled.path)


def test_the_version_of_the_rules_is_that_of_their_files() -> None:
    """The same twice, and short enough to read."""
    assert rules_version() == rules_version()
    assert len(rules_version()) == 12


def test_cells_are_played_on_processes_and_broken_ones_named() -> None:
    """A cell whose data is not there gives a text; the others give lines of the rules' version."""
    cells = [Cell("digits", "iid", 10, 0.5, "crash", bad="1"), Cell("digits", "natural", 10)]
    found = list(play(cells, "v9", workers=1))
    lines = [one for one in found if isinstance(one, Line)]
    broken = [one for one in found if isinstance(one, str)]
    assert [(line.cell, line.version) for line in lines] == [(cells[0], "v9")]
    assert lines[0].accusing["FL101"] == list(cells[0].bad_clients())
    assert len(broken) == 1
    assert "natural" in broken[0]


def test_no_cell_begins_when_the_time_is_up() -> None:
    """Nothing is played at all when it was up before."""
    assert list(play(CELLS, "v1", until=0.0)) == []


def test_rows_tell_each_claim_with_its_goal(filled: Results) -> None:
    """Recall and precision of loud faults, false alarms, and F1 beside others."""
    rows = {(row.case, row.measure): row for row in summary(filled.of(CELLS))}
    recall = rows["loud faults from round 5, all clients a round, 30 or 100 clients", "recall (of 3)"]
    assert (recall.value, recall.goal, recall.met) == (1.0, 0.99, True)
    soon = rows[
        "loud faults the same, but for gaussian updates and label flips", "found within two participations (of 3)"
    ]
    assert (soon.value, soon.goal) == (1.0, 0.99)
    alarms = rows["clean runs", "runs with an accusation (of 2)"]
    assert (alarms.value, alarms.goal, alarms.at_least) == (0.0, 0.01, False)
    assert rows["faults in updates, all cells", "F1, FedDebug"].value == 1.0
    assert rows["one client's labels flipped, iid", "found, FedDebug (of 1)"].value == 1.0


def test_a_missed_goal_is_missed(filled: Results) -> None:
    """The rows can say no."""
    lines = [_line(cell, found=False) for cell in CELLS]
    rows = [row for row in summary(lines) if row.measure.startswith("recall") and row.goal is not None]
    assert [row.met for row in rows] == [False]


def test_the_page_says_what_was_left_out(filled: Results) -> None:
    """Cells that were planned and not run, and combinations that do not exist."""
    planned = [*CELLS, Cell("mnist"), Cell("mnist", seed=2)]
    page = text(filled.of(CELLS), planned, {"it cannot be": 7})
    assert "2 planned runs on mnist: not run yet" in page
    assert "7 combinations a seed: it cannot be" in page
    assert "| from round 5, all clients a round, 30 or 100 clients | 1 | 1 (3/3) |" in page
    assert "5 of 7 planned runs" in page
    assert any("mnist" in words for words in left_out([], planned, {}))


def test_the_page_tells_the_newest_rules_apart(filled: Results) -> None:
    """Where others have judged too; the rules that judged last are the newest, read back or not."""
    assert "By the newest rules alone" not in text(filled.of(CELLS), CELLS, {}, filled.newest)
    filled.add(_line(CELLS[0], "v2", found=False))
    assert filled.newest == Results(filled.path).newest == "v2"
    page = text(filled.of(CELLS), CELLS, {}, filled.newest)
    alone = page.partition("## By the newest rules alone")[2].partition("\n## ")[0]
    assert "the 1 runs that rules `v2` have judged; the other 4" in alone
    assert "| from round 5, all clients a round, 30 or 100 clients | 1 | 0 (0/3) |" in alone
    assert "## Beside others" in page


def test_quiet_faults_have_goals_among_many_clients(filled: Results) -> None:
    """Ten clients are told apart, and nothing is asked of them."""
    many = Cell("digits", "iid", 30, 1.0, "backdoor", bad="1", from_round=5)
    rows = [row for row in summary([*filled.of(CELLS), _line(many)]) if row.measure.startswith("accused or suspect")]
    assert [(row.case, row.goal) for row in rows] == [
        ("quiet fault: backdoor, all clients a round, 30 or 100 clients", 0.60),
        ("quiet fault: backdoor, all clients a round, 10 clients", None),
    ]


def test_copies_have_a_goal_among_many_clients_that_all_take_part(filled: Results) -> None:
    """Exact ones and those with noise are told apart; any other circumstance has no goal."""
    exact, noisy = (Cell("digits", "iid", 30, 1.0, "duplicate", one, "3", 5) for one in ("default", "noisy"))
    for cell, found in ((exact, True), (noisy, False), (Cell("digits", "iid", 10, 0.5, "duplicate", bad="1"), True)):
        filled.add(_line(cell, found=found))
    lines = list(filled.lines.values())
    copied = [row for row in summary(lines) if row.case.startswith("duplicates")]
    rows = {row.case: row for row in copied if row.measure.startswith("recall")}
    shares = {case.partition(", ")[2]: (row.value, row.goal) for case, row in rows.items()}
    assert shares["from round 5, all clients a round, 30 or 100 clients"] == (0.5, 0.98)
    assert shares["the same, exact copies"] == (1.0, None)
    assert shares["the same, copies with 1% noise"] == (0.0, None)
    assert shares["in any circumstances"] == (4 / 7, None)
    assert "copies with 1% noise | 1 | 0 (0/3)" in text(lines, [line.cell for line in lines], {})


def test_the_picture_has_a_dot_for_each_detector_and_fault(filled: Results) -> None:
    """As well-formed SVG."""
    root = ElementTree.fromstring(drawn(filled.of(CELLS)))
    told = [one.text for one in root.iter("{http://www.w3.org/2000/svg}title")]
    assert "FedDebug, sign-flip: 1.00" in told
    assert "fedvitals, backdoor: 1.00" in told


def test_the_command_writes_from_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With no minutes nothing is played; the page and its picture are made, and rows printed."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    results = Results(tmp_path / "faults.jsonl")
    for cell in quick():
        results.add(_line(cell, rules_version()))
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    words = ["faults", "--quick", "--json", "--minutes", "0", "--write", str(tmp_path / "docs")]
    assert command.run(parser.parse_args([*words, "--results", str(results.path)])) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["bench"] == "faults"
    assert {"case", "measure", "value", "low", "high", "unit", "goal"} == set(document["rows"][0])
    page = tmp_path / "docs" / "explanation" / "fault-bench.md"
    assert "![F1 over clients, a fault a row](fault-bench.svg)" in page.read_text()
    assert (page.parent / "fault-bench.svg").is_file()


def test_what_a_page_is_made_of_is_kept_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that it is there on the next machine, too: the same page can be written without playing anything."""
    monkeypatch.setattr(measuring, "planned", lambda tuning: CELLS)
    results = Results(tmp_path / "explanation" / "fault-bench.jsonl")
    for cell in CELLS:
        results.add(_line(cell, rules_version()))
    measuring.run(minutes=0, write=str(tmp_path))
    page = (tmp_path / "explanation" / "fault-bench.md").read_text()
    assert "5 of 5 planned runs" in page
    assert Results(results.path).lines == results.lines


def test_wishes_that_cannot_be_are_refused(tmp_path: Path) -> None:
    """A final page of tuning runs, a folder that is not there, an option that another bench does not take."""
    with pytest.raises(FedvitalsError, match="final page"):
        measuring.run(tuning=True, write=str(tmp_path))
    with pytest.raises(FedvitalsError, match="no such folder"):
        measuring.run(data=str(tmp_path / "nowhere"))
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    with pytest.raises(FedvitalsError, match="takes no --minutes"):
        command.run(parser.parse_args(["startup", "--minutes", "1"]))
