"""FL701, FL702: sums that hide nobody, and records that the level does not allow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from charted import found, trained

from fedvitals.vocabulary import Level, Severity


@pytest.mark.parametrize(
    ("level", "clients", "severity"),
    [
        ("sealed", 1, Severity.CRITICAL),
        ("sealed", 2, Severity.WARNING),
        ("summary", 2, Severity.WARNING),
        ("open", 1, Severity.INFO),
    ],
)
def test_a_sum_of_few(level: str, clients: int, severity: Severity, tmp_path: Path) -> None:
    """How bad that is depends on what was promised."""
    chart = trained(tmp_path, {"observe.level": level, "train.clients_per_round": clients, "train.rounds": 4})
    (one,) = found(chart, "FL701")
    assert (one.severity, one.evidence["fewest"], one.rounds) == (severity, clients, (0, 1, 2, 3))


@pytest.mark.parametrize(("level", "clients"), [("sealed", 3), ("open", 2)])
def test_a_sum_of_more(level: str, clients: int, tmp_path: Path) -> None:
    """Says nothing."""
    chart = trained(tmp_path, {"observe.level": level, "train.clients_per_round": clients, "train.rounds": 3})
    assert found(chart, "FL7") == ()


def test_what_a_sealed_run_must_not_hold(tmp_path: Path) -> None:
    """A recording at its level is in order; the same records under another level are named kind by kind."""
    chart = trained(tmp_path / "a", {"observe.level": "sealed", "train.rounds": 3})
    assert found(chart, "FL702") == ()
    open_one = trained(tmp_path / "b", {"train.rounds": 3})
    sealed = replace(open_one, run=replace(open_one.run, level=Level.SEALED))
    kinds = {one.evidence["what"] for one in found(sealed, "FL702")}
    assert {"norms of updates", "sketches of updates", "statistics of updates a layer"} <= kinds


def test_sketches_that_were_switched_off(tmp_path: Path) -> None:
    """None are there, so nothing is said; had they been kept, it would be."""
    chart = trained(tmp_path / "a", {"train.rounds": 3}, sketches=False)
    assert found(chart, "FL702") == ()
    kept = trained(tmp_path / "b", {"train.rounds": 3})
    told = replace(kept.run, environment={**kept.run.environment, "settings": {"sketches": False}})
    assert [one.severity for one in found(replace(kept, run=told), "FL702")] == [Severity.WARNING]


def test_whole_updates_at_level_summary(tmp_path: Path) -> None:
    """Keeping them breaks the promise."""
    chart = trained(tmp_path, {"observe.level": "summary", "train.rounds": 3}, keep_updates=True)
    (one,) = found(chart, "FL702")
    assert one.evidence["setting"] == "keep_updates"
