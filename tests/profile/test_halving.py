"""Which trials go on: the laws of the rungs and of the choice."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedvitals.profile.halving import Standing, kept, outlook, rungs
from fedvitals.profile.pareto import Trial

JOB = ((1, 0.2), (6, 0.5), (12, 0.8), (24, 0.9))  # the job as it is


def _standing(
    wall_s: float, wire: float, accuracy: float, *, rounds: int = 3, reached: bool = False, memory: float = 1e8
) -> Standing:
    return Standing(Trial((), ("run",), wall_s, wall_s, memory, wire, accuracy), rounds, reached)


FAILED = Standing(Trial((), (), None, None, None, None, None, "ended with code 2"), 3, False)


@given(rounds=st.integers(1, 10_000), least=st.integers(1, 100))
def test_rungs_lead_up_to_all_rounds(rounds: int, least: int) -> None:
    """Each longer than the one before, and none too short to hold a target, where the job itself is not."""
    found = rungs(rounds, least)
    assert found[-1] == rounds
    assert list(found) == sorted(set(found))
    assert min(found) >= min(least, rounds)


def test_a_trial_is_expected_to_go_on_as_the_job_did() -> None:
    """After 3 rounds where the job was after 6 of 24, it needs four times the time and bytes, and no more memory."""
    seen = outlook(_standing(10.0, 1000.0, 0.45), JOB)
    assert (seen.rounds, seen.wall_s, seen.wire_bytes, seen.memory_bytes) == (12.0, 40.0, 4000.0, 1e8)
    done = outlook(_standing(10.0, 1000.0, 0.9, reached=True), JOB)
    assert (done.rounds, done.wall_s, done.wire_bytes) == (3.0, 10.0, 1000.0)
    assert outlook(_standing(10.0, 1000.0, 0.1), JOB).rounds == 3 * 24 / 0.5
    assert outlook(_standing(10.0, 1000.0, 0.0), JOB).rounds == math.inf


def test_each_cost_has_its_turn() -> None:
    """The quickest and the one that sends least both go on; the cheapest of all that learns nothing does not."""
    some = [
        _standing(1.0, 9.0, 0.6),  # the quickest
        _standing(9.0, 1.0, 0.6),  # the smallest
        _standing(9.0, 9.0, 0.6),
        _standing(0.1, 0.1, 0.01),  # learns nothing
    ]
    assert kept(some, JOB, 24) == [0, 1]


def test_failed_trials_never_go_on() -> None:
    """Not even where half would be more than are left."""
    assert kept([FAILED, FAILED, FAILED, _standing(1.0, 1.0, 0.3)], JOB, 24) == [3]
    assert kept([FAILED, FAILED], JOB, 24) == []


@given(
    costs=st.lists(
        st.tuples(st.floats(0.1, 10), st.floats(1, 1e6), st.floats(0, 1), st.booleans()), min_size=1, max_size=12
    ),
    curve=st.sampled_from([JOB, ((5, 0.0), (10, 0.0)), ()]),
)
def test_the_choice_is_a_half_of_different_ones(
    costs: list[tuple[float, float, float, bool]], curve: tuple[tuple[int, float], ...]
) -> None:
    """At least one, whatever the job's own curve says."""
    some = [_standing(wall, wire, accuracy, reached=reached) for wall, wire, accuracy, reached in costs]
    places = kept(some, curve, 24)
    assert len(places) == len(set(places)) == max(1, len(some) // 2)
    assert set(places) <= set(range(len(some)))


@given(st.permutations(range(5)))
def test_the_order_does_not_matter(order: list[int]) -> None:
    """Of trials that differ in everything, the same go on in whatever order they were made."""
    some = [
        _standing(1.3 + place, 9.0 - place, 0.5 + place / 50, memory=1e8 + (place * 7 % 5) * 1e7) for place in range(5)
    ]
    chosen = {id(some[place]) for place in kept(some, JOB, 24)}
    shuffled = [some[place] for place in order]
    assert {id(shuffled[place]) for place in kept(shuffled, JOB, 24)} == chosen


@pytest.mark.parametrize(("rounds", "least", "right"), [(30, 3, (4, 10, 30)), (8, 3, (3, 8)), (2, 3, (2,))])
def test_rungs_are_a_ninth_a_third_and_all(rounds: int, least: int, right: tuple[int, ...]) -> None:
    """As far as there are so many rounds."""
    assert rungs(rounds, least) == right
