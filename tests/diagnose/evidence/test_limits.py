"""From which height on clients are accused: alone, several together, and beside somebody."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedvitals.diagnose.evidence.limits import ACCUSED, SUSPECTED, limits

REST = np.linspace(-6.5, -5.5, 30)  # of clients of whom nothing is to be said


def accused(*heights: float, rest: np.ndarray = REST) -> list[float]:
    """Heights of those who are named, beside honest ones."""
    run = np.array([*heights, *rest])
    return sorted((float(one) for one in run[run >= limits(run)[0]]), reverse=True)


def test_one_alone_must_stand_at_its_threshold() -> None:
    """Just below, nobody is named; a run of which nothing is known names nobody."""
    assert accused(ACCUSED.alone - 0.01) == []
    assert accused(ACCUSED.alone) == [ACCUSED.alone]
    assert limits(REST) == (ACCUSED.alone, SUSPECTED.alone)
    assert limits(np.full(3, -np.inf)) == limits(np.array([])) == (ACCUSED.alone, SUSPECTED.alone)


def test_who_stands_near_somebody_accused_is_accused_too() -> None:
    """Much less is enough, and no more than that: the same for suspects."""
    slope = np.linspace(-1.1, -5.5, 30)
    assert accused(1.7, -0.5, -0.6, *slope) == [1.7, -0.5]
    run = np.array([0.7, -1.0, *REST])
    assert limits(run) == (ACCUSED.alone, SUSPECTED.beside)
    assert SUSPECTED.beside < ACCUSED.beside < SUSPECTED.alone < ACCUSED.alone


@pytest.mark.parametrize("count", [2, 3, 6, 10])
def test_several_need_not_stand_so_high(count: int) -> None:
    """The more they are, the lower they may; each of them alone would not even be a suspect from two on."""
    height = ACCUSED.several - 0.8 * np.log2(count)
    run = [float(height + 0.01 * place) for place in range(count)]
    assert sorted(accused(*run)) == pytest.approx(run)
    assert accused(*[one - 0.1 for one in run]) == []


def test_several_among_many_like_them_are_nobody_in_particular() -> None:
    """A run that is sick as a whole stands high; nobody is named for it, however many there are."""
    assert accused(*np.linspace(-2.5, 0.3, 30), rest=np.linspace(-4.0, -2.5, 20)) == []


def test_a_group_is_named_down_to_the_widest_gap_below_it() -> None:
    """Not beyond a gap that is wider than those inside the group, nor where there is none."""
    assert accused(2.0, 1.4, -0.4, -1.2) == [2.0, 1.4, -0.4, -1.2]
    assert accused(5.0, 4.5, 4.1, -1.5, -2.4)[-1] == 4.1
    slope = np.linspace(-0.6, -5.5, 25)
    assert accused(2.0, 1.4, -0.4, *slope) == [2.0, 1.4, -0.4]


def test_nobody_is_named_by_a_gap_beside_one_alone() -> None:
    """What is bad in one client says nothing of the next."""
    assert accused(3.0, -0.9) == [3.0]


@given(st.lists(st.floats(-20, 20), max_size=60), st.randoms())
def test_limits_are_those_of_the_heights_in_any_order(heights: list[float], random: object) -> None:
    """Suspects stand no higher than the accused, and whoever is above his own threshold is named."""
    run = np.array(heights)
    accuse, suspect = limits(run)
    assert limits(np.array(sorted(heights, key=lambda _: random.random()))) == (accuse, suspect)  # type: ignore[attr-defined]
    assert suspect <= accuse <= ACCUSED.alone
    assert suspect <= SUSPECTED.alone
