"""What an honest client of its size does by chance: the fewer rows, the more its numbers scatter."""

from __future__ import annotations

import numpy as np

from fedvitals.diagnose.evidence.sizes import STEEPEST, Sizes

SMALL, LARGE = 6.0, 600.0


def _fitted(scatter: np.ndarray, sizes: np.ndarray, rounds: int = 60) -> np.ndarray:
    """By what each client's spread is multiplied, after so many rounds of numbers that scatter like this."""
    random, known = np.random.default_rng(0), Sizes(1)
    larger = np.log(sizes) - np.median(np.log(sizes))
    found = np.ones((len(sizes), 1))
    for _ in range(rounds):
        found = known.at(larger).taken_in(random.normal(size=(len(sizes), 1)) * scatter[:, None])
    return found[:, 0]


def test_small_clients_are_given_the_spread_that_they_have() -> None:
    """Where numbers are means over rows, a hundredth of the rows makes nearly ten times the spread."""
    sizes = np.repeat([SMALL, 60.0, LARGE], 10)
    found = _fitted(30.0 / np.sqrt(sizes), sizes)
    assert 2.0 < found[0] < np.sqrt(10) * 1.2
    assert found[-1] < 0.5
    assert np.isclose(found[10], 1.0)


def test_size_does_not_matter_where_it_does_not_show() -> None:
    """Numbers that scatter alike keep one spread; clients of one size need none."""
    sizes = np.repeat([SMALL, 60.0, LARGE], 10)
    assert np.abs(np.log(_fitted(np.ones(30), sizes))).max() < 0.25
    assert (_fitted(np.ones(30), np.full(30, 60.0)) == 1.0).all()


def test_large_clients_that_scatter_more_are_no_reason_to_trust_small_ones_more() -> None:
    """The power is never negative, nor steeper than chance makes it."""
    sizes = np.repeat([SMALL, LARGE], 15)
    assert (_fitted(sizes, sizes) == 1.0).all()
    steep = np.log(_fitted(sizes**-3.0 * 1e6, sizes))
    assert np.ptp(steep) <= STEEPEST * np.log(LARGE / SMALL) + 1e-9


def test_missing_numbers_count_for_nothing() -> None:
    """A measure that nobody has yet leaves the others as they are."""
    known, larger = Sizes(2), np.array([-1.0, 0.0, 1.0, 0.5])
    away = np.array([[3.0, np.nan], [0.5, np.nan], [0.1, np.nan], [0.2, np.nan]])
    found = known.at(larger).taken_in(away)
    assert np.isfinite(found).all()
    assert (found[:, 1] == 1.0).all()
    assert found[0, 0] > 1.0
