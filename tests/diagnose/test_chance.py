"""The statistics that rules share: habits beyond chance, trends and changes, at their stated rates."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from charted import trained
from hypothesis import given
from hypothesis import strategies as st

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.persistence import streaks, tail
from fedvitals.diagnose.robust import student
from fedvitals.diagnose.trends import change, trend
from fedvitals.diagnose.writing import between, seconds, size, times


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Chart:
    return trained(tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize("usual", [0.01, 0.05, 0.2, 0.5])
def test_chance_names_nobody(chart: Chart, usual: float) -> None:
    """Marks that fall at random accuse somebody in few of 200 runs, whatever their rate."""
    generator = np.random.default_rng(4)
    everyone = np.ones(len(chart.participations), bool)
    runs = [streaks(chart, generator.random(len(everyone)) < usual, everyone) for _ in range(200)]
    assert sum(bool(found) for found in runs) <= 4


def test_scores_of_few_numbers_are_held_to_students_law() -> None:
    """As its tables have it at the normal law's 97.5% and 99.9%; of many numbers it is the normal law."""
    np.testing.assert_allclose(student(1.95996, np.array([5.0, 10, 30])), [2.571, 2.228, 2.042], rtol=0.02)
    np.testing.assert_allclose(student(3.09023, np.array([5.0, 10, 30])), [5.893, 4.144, 3.385], rtol=0.03)
    np.testing.assert_allclose(student(4.5, np.array([1e6])), 4.5, rtol=1e-3)
    assert np.isfinite(student(8.0, np.array([-1.0, 0.0, 1.0]))).all()


def test_a_habit_is_found_from_its_beginning(chart: Chart) -> None:
    """Though a tenth of the others' are marked too."""
    table, generator = chart.participations, np.random.default_rng(5)
    marked = (generator.random(len(table)) < 0.1) & (table.client != 4)
    rows = chart.histories[4][3:]
    marked[rows] = True
    (found,) = streaks(chart, marked, np.ones(len(table), bool))
    assert found.client == 4
    assert set(rows.tolist()) <= set(found.rows.tolist())


@given(st.integers(1, 60), st.floats(0.01, 0.9), st.integers(0, 60))
def test_the_bound_is_one(of: int, usual: float, hits: int) -> None:
    """Never below the binomial tail itself."""
    from math import comb

    hits = min(hits, of)
    exact = sum(comb(of, k) * usual**k * (1 - usual) ** (of - k) for k in range(hits, of + 1))
    assert float(tail(np.array([hits]), np.array([of]), usual)[0]) >= exact * (1 - 1e-9)


def test_trends_are_told_from_noise() -> None:
    """A slope is found with its size; noise is not in 19 of 20 series at least."""
    generator, x = np.random.default_rng(6), np.arange(60.0)
    rising = trend(x, 0.3 * x + generator.normal(size=60))
    assert rising.slope == pytest.approx(0.3, rel=0.2)
    assert rising.chance < 1e-6
    assert sum(trend(x, generator.normal(size=60)).chance < 0.01 for _ in range(100)) <= 5


def test_a_change_is_placed() -> None:
    """Where it was, with both medians; a series that is too short has none."""
    generator = np.random.default_rng(7)
    values = np.r_[generator.normal(0, 1, 30), generator.normal(9, 1, 20)]
    found = change(values)
    assert found is not None
    assert abs(found.place - 30) <= 1
    assert found.after - found.before == pytest.approx(9, abs=1)
    assert change(np.arange(3.0)) is None


def test_streaks_of_nobody(chart: Chart, tmp_path: Path) -> None:
    """No participation that can be judged: nobody is named."""
    nobody = np.zeros(len(chart.participations), bool)
    assert streaks(chart, ~nobody, nobody) == []
    assert streaks(replace(chart), nobody, ~nobody) == []


def test_words() -> None:
    """As a person writes them."""
    assert [seconds(2e-5), seconds(0.0042), seconds(0.25), seconds(3.44), seconds(1234)] == [
        "20 us",
        "4.2 ms",
        "250 ms",
        "3.4 s",
        "1,234 s",
    ]
    assert [size(850), size(12_300), size(4e6), size(2.1e9)] == ["850 B", "12.3 kB", "4.0 MB", "2.1 GB"]
    assert [times(1), times(2), times(5), times(1, "round"), times(3, "round")] == [
        "once",
        "twice",
        "5 times",
        "1 round",
        "3 rounds",
    ]
    assert [between(1.0, 1.3), between(1.0, 1.01)] == ["1.0 s to 1.3 s", "1.0 s"]
