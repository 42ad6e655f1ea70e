"""Records to rows: the right numbers in the right places, and nothing that a terminal would obey."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from recorded import HOSTILE, MS, participation

from fedvitals.show.overview import Overview
from fedvitals.show.tables import (
    Table,
    clients_table,
    failures_table,
    fitted,
    header_lines,
    layers_table,
    middle,
    participations_table,
    rounds_table,
)
from fedvitals.show.words import safe
from fedvitals.vocabulary import Evaluation, Failure, Outcome, Round, Run, Status, TensorStats


def _cells(table: Table, row: int) -> dict[str, str]:
    return dict(zip(table.columns, table.rows[row], strict=True))


def test_rounds_have_their_last_judgement() -> None:
    """A round's loss is the global model's on the test rows, as judged last; a client's own is not taken for it."""
    rounds = [Round(0, 0, 0, 80 * MS, 3, 3, 0), Round(1, 1, 80 * MS, None, 3, 0, 0)]
    judged = [
        Evaluation(0, 1, loss=9.0, accuracy=0.1),
        Evaluation(0, 2, loss=1.5, accuracy=0.25),
        Evaluation(0, 3, client="7", loss=4.0, accuracy=0.9),
    ]
    table = rounds_table(rounds, judged)
    assert _cells(table, 0) == {
        "round": "0",
        "loss": "1.500",
        "accuracy": "0.250",
        "asked": "3",
        "used": "3",
        "failed": "0",
        "took": "80 ms",
    }
    assert (_cells(table, 1)["loss"], _cells(table, 1)["took"]) == ("-", "-")


def test_a_round_that_broke_says_why() -> None:
    """The column of errors is there as soon as one round has one."""
    table = rounds_table([Round(0, 0, 0, 1, error="no client left")], [])
    assert _cells(table, 0)["error"] == "no client left"


def test_clients_are_told_by_the_middle_of_their_rounds() -> None:
    """One row a client, in the order people count; one wild round does not move it."""
    own = [participation("10", number, update_norm=norm) for number, norm in enumerate((1.0, 2.0, 900.0))]
    other = participation("9", 0, outcome=Outcome.FAILED, update_norm=None, wire_bytes_up=None)
    table = clients_table([*own, other])
    assert [row[0] for row in table.rows] == ["9", "10"]
    assert _cells(table, 0) | {"rounds": "1", "used": "0", "failed": "1", "norm": "-", "sent": "-"} == _cells(table, 0)
    assert _cells(table, 1) | {"rounds": "3", "used": "3", "norm": "2.000", "sent": "4.5 kB"} == _cells(table, 1)


def test_participations_are_of_a_round_or_of_a_client() -> None:
    """The first column is what differs; the bad step is shown when there is one."""
    rows = [participation("a", 0), participation("a", 1, bad_step=4, nonfinite=12, loss=math.nan)]
    history = participations_table(rows, of_client=True)
    assert [row[0] for row in history.rows] == ["0", "1"]
    assert _cells(history, 1) | {"bad step": "4", "non-finite": "12", "loss": "nan"} == _cells(history, 1)
    assert "bad step" not in participations_table(rows[:1], of_client=False).columns
    assert "stale" not in history.columns
    stale = participations_table([rows[0]._replace(staleness=7)], of_client=True)
    assert stale.rows[0][stale.columns.index("stale")] == "7"


def test_no_cell_can_move_the_terminal() -> None:
    """Names of clients, layers, errors and messages come from strangers: every cell is one printable line."""
    tables = [
        clients_table([participation(HOSTILE)]),
        participations_table([participation(HOSTILE, outcome="\x07used")], of_client=False),
        failures_table([Failure(0, "\x1b[H", "K\r", "bad\x1b[31m row\nsecond", 1, HOSTILE)]),
        layers_table("t", [TensorStats("net\x9b.w", 1, 1, 1, 1, 1, 1, 0)]),
        rounds_table([Round(0, 0, 0, 1, error="\x1b]0;owned\x07")], []),
    ]
    cells = [cell for table in tables for row in table.rows for cell in row]
    assert all(cell.isprintable() for cell in cells)
    assert tables[0].rows[0][0] == "[red]x\\x1b[2J"
    assert tables[2].rows[0][-1] == "bad\\x1b[31m row"


def test_spare_columns_go_first_where_room_is_short() -> None:
    """In their order, only as many as it takes; what is not spare stays whatever the width."""
    table = Table("", ("a", "bb", "ccc"), (("11111", "2", "3"),), spare=("ccc", "a"))
    assert fitted(table, 14).columns == ("a", "bb", "ccc")
    assert fitted(table, 13).columns == ("a", "bb")
    assert fitted(table, 13).rows == (("11111", "2"),)
    assert fitted(table, 1).columns == ("bb",)


@pytest.mark.parametrize(
    ("values", "expected"),
    [([], None), ([None], None), ([3.0, None, 1.0], 2.0), ([5.0, 1.0, 2.0], 2.0), ([math.nan, 1.0, 2.0], 2.0)],
)
def test_the_middle_is_the_median(values: list[float | None], expected: float | None) -> None:
    """Of what is there; NaN counts as the largest."""
    assert middle(values) == expected


def test_a_client_that_is_mostly_nan_is_nan() -> None:
    """NaN is not hidden when most of a client's rounds have it."""
    result = middle([math.nan, math.nan, 1.0])
    assert result is not None
    assert math.isnan(result)


def test_a_run_that_failed_says_what_ended_it() -> None:
    """At its head, where its status is."""
    failed = Run("a", "a", Status.FAILED, 0, health={"error": f"ValueError: {HOSTILE}"})
    lines = dict(header_lines(Overview(failed, 1, 1, 0, None, None, None, 0)))
    assert lines["ended by"] == f"ValueError: {safe(HOSTILE)}"
    ended = Overview(replace(failed, status=Status.FINISHED, health={}), 1, 1, 0, None, None, None, 0)
    assert "ended by" not in dict(header_lines(ended))
