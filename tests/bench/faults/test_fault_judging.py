"""What counts as found, by whom, and after how many participations."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import pytest

from fedvitals.bench.faults.cells import Cell
from fedvitals.bench.faults.judging import ACCUSED, OURS, SUSPECTED, SUSPECTS, Line, Named, held_responsible, judged
from fedvitals.bench.faults.scores import (
    Share,
    found_within,
    participations_until,
    right_place,
    right_rule,
    runs_by_rule,
    runs_naming,
    server_found,
    tally,
)
from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.rule import WrittenRule
from fedvitals.vocabulary import Finding, Grade, Severity


def _finding(
    code: str,
    clients: Sequence[str],
    grade: Grade = Grade.ACCUSED,
    severity: Severity = Severity.WARNING,
    layers: Sequence[str] = (),
    symptoms: tuple[Finding, ...] = (),
    **evidence: object,
) -> Finding:
    return Finding(
        code, "made up", severity, grade, (), tuple(clients), tuple(layers), "", evidence, (), symptoms=symptoms
    )


def test_whom_findings_hold_responsible() -> None:
    """Not who is named in passing, suffers, or stands in a symptom; suspicions only where they are asked for."""
    findings = [
        _finding("FL601", ["1"], symptoms=(_finding("FL402", ["9"]),)),
        _finding("FL607", ["2"], Grade.SUSPECT, Severity.INFO),
        _finding("FL505", ["3"], severity=Severity.INFO),
        _finding("FL503", ["4"]),
    ]
    assert held_responsible(findings, frozenset(), (ACCUSED,)) == {"1"}
    assert held_responsible(findings, frozenset(), (ACCUSED, SUSPECTED)) == {"1", "2"}


def test_a_pair_of_duplicates_is_right_when_the_copier_is_in_it() -> None:
    """The copied one is no false accusation then; a pair of two honest clients is two."""
    pair = [_finding("FL606", ["1", "2"])]
    assert held_responsible(pair, frozenset({"2"}), (ACCUSED,)) == {"2"}
    assert held_responsible(pair, frozenset({"3"}), (ACCUSED,)) == {"1", "2"}


def _late_rule(client: str, after: int) -> WrittenRule:
    """Accuses this client once the run has shown so many rounds, and suspects client 0 all the time."""

    def look(chart: Chart) -> list[Finding]:
        found = [_finding("FL608", ["0"], Grade.SUSPECT, Severity.INFO)]
        return found + ([_finding("FL604", [client])] if len(chart.rounds) > after else [])

    return WrittenRule("FL604", "made up", "Made up.", look)


@pytest.fixture(scope="module")
def cell() -> Cell:
    return Cell("digits", "iid", 10, 1.0, "zero-update", bad="1", from_round=5)


def test_a_run_is_judged_as_it_went(cell: Cell) -> None:
    """A rule that speaks after round 7 finds a fault of round 5 at its third struck participation."""
    (bad,) = cell.bad_clients()
    line = judged(cell, "v1", [_late_rule(bad, 7)])
    assert line.struck == {bad: list(range(5, 20))}
    assert line.named[OURS] == Named((bad,), {bad: 7})
    assert line.named[SUSPECTS].first["0"] == (0 if bad != "0" else 5)
    assert participations_until(line, bad) == 3
    assert line.accusing == {"FL604": [bad]}
    assert right_rule([line]) == (1, 1)
    assert set(line.named) == {OURS, SUSPECTS, "FedDebug", "FLDetector", "multi-krum", "tutorials"}
    assert Line.from_dict(json.loads(json.dumps(line.to_dict()))) == line


def test_being_named_before_being_struck_is_no_finding(cell: Cell) -> None:
    """What counts is who is named from the first struck round on."""
    (bad,) = cell.bad_clients()
    line = judged(cell, "v1", [_late_rule(bad, 1)])
    assert participations_until(line, bad) == 1
    assert line.named[OURS].first == {bad: 5}


def test_real_rules_find_a_numeric_fault_and_its_place() -> None:
    """The client, the code, the layer and nobody else."""
    line = judged(Cell("digits", "iid", 10, 1.0, "frozen-layer", bad="1", from_round=5), "v1")
    (bad,) = line.struck
    assert line.accusing["FL409"] == [bad]
    assert line.named[OURS].end == (bad,)
    assert line.layer == [1, 1]


def _line(fault: str = "sign-flip", **given: object) -> Line:
    bad = "0" if fault in ("none", "slow-aggregation") else "1"
    parts: dict[str, object] = {
        "cell": Cell(fault=fault, bad=bad),
        "version": "v",
        "struck": {},
        "hit": {},
        "named": {OURS: Named()},
        "accusing": {},
        "suspecting": {},
    }
    return Line(**{**parts, **given})  # type: ignore[arg-type]  # a table of parts that differ in type


def test_recall_and_precision_are_over_clients() -> None:
    """Two of three found, one of three named wrongly; runs without a bad client are not counted."""
    lines = [
        _line(struck={"1": [0, 1], "2": [0]}, named={OURS: Named(("1", "7"), {"1": 1, "7": 0})}),
        _line(struck={"3": [4, 6, 9]}, named={OURS: Named(("3",), {"3": 9})}),
        _line("none", named={OURS: Named(("5",), {"5": 0})}),
    ]
    found = tally(lines)
    assert (found.cells, found.recall, found.precision) == (2, (2, 3), (2, 3))
    assert found.f1 == pytest.approx(2 / 3)
    assert found_within(lines, 2) == (1, 3)
    assert found_within(lines, 3) == (2, 3)
    assert tally(lines, OURS, lambda line, client: client != "2").recall == (2, 2)
    assert math.isnan(tally([]).f1)


def test_clean_runs_are_counted_by_rule() -> None:
    """Findings about no client count for their rule, and do not make a run accused."""
    lines = [
        _line("none", accusing={"FL203": []}),
        _line("none", accusing={"FL601": ["1"]}, named={OURS: Named(("1",), {"1": 3})}),
        _line("slow-aggregation", accusing={"FL203": []}),
    ]
    assert runs_naming(lines) == (1, 2)
    assert runs_by_rule(lines, "accusing") == {"FL203": (1, 2), "FL601": (1, 2)}
    assert server_found(lines) == (1, 1)


def test_places_are_counted_where_there_is_one() -> None:
    """Other runs are not asked."""
    lines = [_line(layer=[1, 2]), _line(layer=[1, 1]), _line()]
    assert right_place(lines, "layer") == (2, 3)
    assert right_place(lines, "step") == (0, 0)


def test_a_share_has_a_band_that_holds_it() -> None:
    """Even when all or none were."""
    for part in range(11):
        low, high = Share(part, 10).band
        assert 0 <= low <= part / 10 <= high <= 1
        assert high - low > 0.2
    assert math.isnan(Share(0, 0).value)
