"""A run in a real store, charted and examined."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import fedvitals
from fedvitals.diagnose import diagnose
from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.charting import read_chart
from fedvitals.diagnose.rule import CannotSee, Sight, WrittenRule
from fedvitals.train.engine import train
from fedvitals.train.job import Job
from fedvitals.vocabulary import Finding, Grade, Severity


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chart]:
    settings = fedvitals.Settings(dir=str(tmp_path_factory.mktemp("runs")))
    job = Job.from_dict(
        {
            "data": {"source": "digits", "clients": 6},
            "train": {"rounds": 4, "clients_per_round": 5},
            "faults": [{"kind": "crash", "clients": [1]}, {"kind": "zero-update", "clients": [2]}],
        }
    )
    train(job, settings=settings)
    reader = fedvitals.open_store(settings).open("last")
    yield read_chart(reader)
    reader.close()


def test_a_chart_lines_everything_up(chart: Chart) -> None:
    """Row i of the updates is row i of the participations: the sender of nothing has a norm of 0, the crashed none."""
    table, updates = chart.participations, chart.updates
    assert updates is not None
    names = np.array(chart.clients)[table.client]
    assert set(chart.clients) == {"0", "1", "2", "3", "4", "5"}
    assert np.all(updates.norms[names == "2"] == 0)
    assert not updates.present[names == "1"].any()
    norms = np.sqrt((updates.norms.astype(float) ** 2).sum(axis=1))
    np.testing.assert_allclose(norms[updates.present], table.update_norm[updates.present], rtol=1e-3)
    assert [len(rows) for _, rows in chart.cohorts] == [5, 5, 5, 5]
    assert all(np.all(np.diff(table.attempt[rows]) == 1) for rows in chart.histories)


def test_a_crash_is_found_with_its_traceback(chart: Chart, tmp_path: Path) -> None:
    """One cause, however often it struck, is one finding."""
    from fedvitals.diagnose.diagnosis import examine
    from fedvitals.diagnose.registry import chosen

    found = examine(chart, chosen(["FL101"])).findings
    assert [(one.code, one.clients) for one in found] == [("FL101", ("1",))]
    assert "Traceback" in str(found[0].evidence["traceback"])


def _rule(code: str, look: object, needs: frozenset[Sight] = frozenset()) -> WrittenRule:
    return WrittenRule(code, "made up", "Made up.", look, needs)  # type: ignore[arg-type]  # any callable will do


def test_a_rule_that_breaks_or_cannot_see_stops_nobody(chart: Chart) -> None:
    """Both are named as not observable, with the reason; the others answer."""
    from fedvitals.diagnose.diagnosis import examine

    def broken(chart: Chart) -> list[Finding]:
        raise ValueError("oops")

    def blind(chart: Chart) -> list[Finding]:
        raise CannotSee("no eyes")

    def sees(chart: Chart) -> list[Finding]:
        return [Finding("FL994", "x", Severity.INFO, Grade.SUSPECT, (), (), (), "because", {}, ())]

    rules = [_rule("FL991", broken), _rule("FL992", blind), _rule("FL994", sees)]
    diagnosis = examine(chart, rules)
    assert [one.code for one in diagnosis.findings] == ["FL994"]
    assert diagnosis.not_observable == {"FL991": "the rule broke: ValueError: oops", "FL992": "no eyes"}


def test_an_empty_run_is_answered(tmp_path: Path) -> None:
    """Every rule answers or says that it cannot see."""
    settings = fedvitals.Settings(dir=str(tmp_path))
    with fedvitals.start("empty", settings=settings):
        pass
    reader = fedvitals.open_store(settings).open("last")
    diagnosis = diagnose(reader)
    reader.close()
    assert not any("the rule broke" in reason for reason in diagnosis.not_observable.values())
