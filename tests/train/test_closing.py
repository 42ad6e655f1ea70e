"""When a round stops waiting, and who is late."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedvitals.train.closing import closed

TIMES = st.floats(0.0, 1e6)
ARRIVED = st.lists(TIMES, max_size=12).map(lambda times: {str(number): time for number, time in enumerate(times)})
MISSING = st.lists(TIMES, max_size=5)
DEADLINES = st.one_of(st.just(0.0), st.floats(1e-3, 1e6))


@given(arrived=ARRIVED, missing=MISSING, wanted=st.integers(1, 15), deadline=DEADLINES)
def test_a_round_closes_by_its_deadline_with_the_first_it_wanted(
    arrived: dict[str, float], missing: list[float], wanted: int, deadline: float
) -> None:
    """Nobody who is late arrived before one who is not, nobody in time arrived after the close, and no more are taken
    than were wanted."""
    at_s, late = closed(arrived, missing, wanted, deadline)
    most = deadline or math.inf
    in_time = [client for client in arrived if client not in late]
    assert 0 <= at_s <= most
    assert late <= set(arrived)
    assert len(in_time) == min(wanted, sum(time <= most for time in arrived.values()))
    assert all(arrived[client] <= at_s for client in in_time)
    assert all(arrived[one] <= arrived[other] for one in in_time for other in late)
    assert at_s <= max([*arrived.values(), *missing], default=0.0)


@given(arrived=ARRIVED, missing=MISSING)
def test_a_round_that_wants_everybody_waits_for_everybody(arrived: dict[str, float], missing: list[float]) -> None:
    """As it does without a policy."""
    everyone = len(arrived) + len(missing)
    assert closed(arrived, missing, everyone) == (max([*arrived.values(), *missing], default=0.0), frozenset())


def test_equals_are_taken_in_the_order_of_selection() -> None:
    """Two that arrive at the same instant, for one place."""
    assert closed({"b": 2.0, "a": 2.0, "c": 1.0}, [], 2).late == {"a"}


@pytest.mark.parametrize(
    ("deadline", "at_s", "late"),
    [(0.0, 9.0, frozenset()), (5.0, 5.0, frozenset()), (3.0, 3.0, frozenset()), (2.5, 2.5, frozenset("b"))],
)
def test_who_never_answers_is_waited_for_until_the_deadline(deadline: float, at_s: float, late: frozenset[str]) -> None:
    """And who arrives at the very instant is in time."""
    assert closed({"a": 1.0, "b": 3.0}, [9.0], 3, deadline) == (at_s, late)


def test_with_enough_nobody_waits_for_the_silent() -> None:
    """Two of three were wanted: the round closes with the second."""
    assert closed({"a": 1.0, "b": 3.0}, [9.0], 2) == (3.0, frozenset())
