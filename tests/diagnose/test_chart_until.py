"""A chart cut at a round is what the run had shown by then."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedvitals
from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.charting import Charting
from fedvitals.train.engine import train
from fedvitals.train.hooks import NoHook, RoundUpdates
from fedvitals.train.job import Job
from fedvitals.vocabulary import Status

ROUNDS = 6


class _Looks(NoHook):
    """Notes whose updates came, round by round."""

    def __init__(self) -> None:
        self.seen: dict[int, set[tuple[str, int]]] = {}

    def before_aggregate(self, round: int, updates: RoundUpdates) -> RoundUpdates:
        self.seen[round] = {(client, round) for client in updates.clients}
        return updates


@pytest.fixture(scope="module")
def looked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Chart, _Looks]:
    settings = fedvitals.Settings(dir=str(tmp_path_factory.mktemp("runs")))
    job = Job.from_dict(
        {
            "data": {"source": "digits", "clients": 8},
            "train": {"rounds": ROUNDS, "clients_per_round": 3},
            "observe": {"steps": "every"},
            "faults": [{"kind": "crash", "clients": [2, 3], "from_round": 2}],
        }
    )
    looks = _Looks()
    result = train(job, settings=settings, hook=looks)
    reader = fedvitals.open_store(settings).open(result.run_id or "")
    chart = Charting(reader).chart()
    reader.close()
    return chart, looks


@pytest.mark.parametrize("round", range(ROUNDS))
def test_a_cut_chart_holds_the_rounds_until_then(looked: tuple[Chart, _Looks], round: int) -> None:
    """Every record of a later round is gone, and none of an earlier one."""
    chart, looks = looked
    cut = chart.until(round)
    table = cut.participations
    used = table.outcome == "used"
    names = np.array(cut.clients)[table.client[used]]
    expected = set().union(*(looks.seen[one] for one in range(round + 1)))
    assert set(zip(names.tolist(), table.round[used].tolist(), strict=True)) == expected
    assert [one.number for one in cut.rounds] == list(range(round + 1))
    assert {one.round for one in cut.evaluations} == set(range(round + 1))
    assert all(one.round is not None and one.round <= round for one in cut.failures)
    assert len(cut.failures) == int((~used).sum())
    assert max(one.round for one in cut.models) <= round
    assert all(span.round is None or span.round <= round for span in cut.spans)
    assert cut.run.status is Status.RUNNING


@pytest.mark.parametrize("round", range(ROUNDS))
def test_a_cut_chart_stays_lined_up(looked: tuple[Chart, _Looks], round: int) -> None:
    """Updates and gradients belong to the same rows as before, and every client of the chart has taken part."""
    chart, _ = looked
    cut = chart.until(round)
    assert cut.updates is not None
    assert cut.gradients is not None
    assert chart.updates is not None
    count = len(cut.participations)
    np.testing.assert_array_equal(cut.updates.stats, chart.updates.stats[:count])
    assert len(cut.updates.present) == count
    assert set(cut.gradients.row.tolist()) == set(np.flatnonzero(cut.updates.present).tolist())
    assert set(cut.participations.client.tolist()) == set(range(len(cut.clients)))
    assert [len(rows) for _, rows in cut.cohorts] == [3] * (round + 1)


def test_a_cut_at_the_end_changes_nothing_that_was_seen(looked: tuple[Chart, _Looks]) -> None:
    """And what rules worked out for the whole is not shown to those who look at a part."""
    chart, _ = looked
    chart.shared(len_of_run)
    whole = chart.until(ROUNDS)
    assert len(whole.participations) == len(chart.participations)
    assert whole.clients == chart.clients
    assert len(whole.evaluations) == len(chart.evaluations)
    assert chart.until(1).shared(len_of_run) == 6
    assert chart.until(-1).clients == ()


def len_of_run(chart: Chart) -> int:
    return len(chart.participations)


def test_an_empty_run_can_be_cut(tmp_path: Path) -> None:
    """There is nothing before its first round either."""
    settings = fedvitals.Settings(dir=str(tmp_path))
    with fedvitals.start("empty", settings=settings) as run:
        pass
    reader = fedvitals.open_store(settings).open(run.id or "")
    chart = Charting(reader).chart()
    reader.close()
    cut = chart.until(3)
    assert len(cut.participations) == 0
    assert cut.updates is None
