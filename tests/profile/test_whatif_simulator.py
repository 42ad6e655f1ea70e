"""The simulator: workers, deadlines, and who would have been asked."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import pytest
from federations import AGGREGATE_S, BEFORE_S, model_of, one_by_one, side_by_side
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedvitals.profile.whatif.cohorts import AsRecorded, BySeed
from fedvitals.profile.whatif.model import EVERYBODY, Model
from fedvitals.profile.whatif.simulate import Change, arrivals, closed, simulated
from fedvitals.train.device import Device
from fedvitals.train.network import Network
from fedvitals.train.selections import RandomSelection

DURATIONS = st.lists(st.floats(0.01, 100.0), min_size=1, max_size=12)
ROUNDS = st.lists(
    st.lists(st.floats(0.01, 20.0), min_size=2, max_size=5).map(lambda some: {f"c{n}": s for n, s in enumerate(some)}),
    min_size=1,
    max_size=4,
)
STORED = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def test_workers_take_the_next_as_soon_as_they_are_free() -> None:
    """In the order in which tasks come."""
    assert arrivals([3, 2, 2, 1], 2) == [3, 2, 4, 4]
    assert arrivals([3, 2, 2], 1) == [3, 5, 7]
    assert arrivals([3, 2, 2], EVERYBODY) == [3, 2, 2]
    assert arrivals([], 2) == []


@given(DURATIONS, st.integers(1, 6))
def test_more_workers_never_take_longer(durations: list[float], workers: int) -> None:
    """Nor less than the longest task, or than a fair share of all."""
    here, one_more = max(arrivals(durations, workers)), max(arrivals(durations, workers + 1))
    assert one_more <= here + 1e-9 <= sum(durations) + 2e-9
    assert one_more >= max(max(durations), sum(durations) / (workers + 1)) - 1e-9


def test_a_round_closes_with_those_it_wants_or_at_its_deadline() -> None:
    """At once when it has them; else when everybody was heard of, at most at the deadline."""
    assert closed({"a": 1.0, "b": 2.0, "c": 3.0}, [], 2, math.inf) == (2.0, frozenset("c"), 2)
    assert closed({"a": 1.0, "b": 2.0, "c": 9.0}, [], 3, 4.0) == (4.0, frozenset("c"), 2)
    assert closed({"a": 1.0}, [7.0], 2, math.inf) == (7.0, frozenset(), 1)
    assert closed({}, [], 0, math.inf) == (0.0, frozenset(), 0)


def test_nothing_changed_gives_what_was(tmp_path: Path) -> None:
    """The clients' part of each round, whichever way they were scheduled."""
    rounds = [{"a": 2.0, "b": 3.0}, {"a": 4.0, "b": 1.0}]
    apart = model_of(tmp_path / "1", side_by_side(rounds))
    assert (apart.workers, apart.side_by_side) == (EVERYBODY, True)
    assert simulated(apart, Change()).clients_s == pytest.approx((3.0, 4.0))
    follow = model_of(tmp_path / "2", one_by_one(rounds))
    assert (follow.workers, follow.side_by_side) == (1, False)
    assert simulated(follow, Change()).clients_s == pytest.approx((5.0, 5.0))


def test_who_is_late_is_not_asked_before_it_is_done(tmp_path: Path) -> None:
    """With a deadline of 2 s a client of 8 s misses three rounds, and comes back in the fourth."""
    rounds = [{"quick": 1.0, "slow": 8.0}] * 4
    model = model_of(tmp_path, side_by_side(rounds), clock="virtual")
    with_deadline = simulated(model, Change(deadline_s=2.0))
    # It is busy until 8.5 s. Rounds begin at 0, 3.5 (0.5 + 2 + 1), 6.0 (0.5 + 1 + 1) and 8.5, when it is done.
    assert with_deadline.clients_s == pytest.approx((2.0, 1.0, 1.0, 2.0))
    assert with_deadline.updates == (1, 1, 1, 1)
    assert BEFORE_S + AGGREGATE_S == 1.5


@STORED
@given(ROUNDS, st.floats(0.01, 25.0))
def test_a_deadline_bounds_every_round(rounds: list[dict[str, float]], deadline_s: float) -> None:
    """Counted from when there is somebody to ask."""
    everybody = {client for one in rounds for client in one}
    whole = [{client: one.get(client, 0.5) for client in everybody} for one in rounds]
    with tempfile.TemporaryDirectory() as folder:
        model = model_of(Path(folder), side_by_side(whole), clock="virtual")
    after = simulated(model, Change(deadline_s=deadline_s))
    assert len(after.clients_s) == len(rounds)
    for part, count in zip(after.clients_s, after.updates, strict=True):
        # A round that finds everybody busy looks again every 60 s.
        assert part % 60.0 <= deadline_s + 1e-6 or not count
        assert part <= max(max(one.values()) for one in whole) + 60.0


def test_the_engine_draws_as_we_say_it_does() -> None:
    """The selection and the attendance that are repeated here are those of the engine."""
    names = tuple(map(str, range(30)))
    network = Network("mobile", names, (Device(available=0.6),) * len(names), seed=11)
    ours = BySeed(11, range(40), names, 5, dict.fromkeys(names, 0.6), frozenset({"4"}))
    looks = 0
    for number in range(40):
        for look in (0, 1):
            there = [one for one in range(30) if one != 4 and network.available(one, number, look)]
            theirs = RandomSelection(11).choose(number, there, 5)
            assert ours.asked(number, (), look) == [names[one] for one in theirs]
            looks += len(theirs)
    assert looks > 300


def test_somebody_else_comes_for_who_is_away() -> None:
    """Where there is anybody who was not asked anyway."""
    draw = AsRecorded([["a", "b"], ["c", "a"]], ["a", "b", "c"])
    assert draw.asked(0, ()) == ["a", "b"]
    assert draw.asked(0, {"a"}) == ["b", "c"]
    assert draw.asked(1, {"a", "b"}) == ["c"]


def test_who_never_was_asked_works_like_somebody_else_in_his_own_name(tmp_path: Path) -> None:
    """So that two of them never become one."""
    model = model_of(tmp_path, side_by_side([{"a": 2.0, "b": 3.0}]))
    strangers = [model.task(name, 0) for name in ("x", "y", "z")]
    assert [one.client for one in strangers] == ["x", "y", "z"]
    assert {one.seconds for one in strangers} <= {2.0, 3.0}
    assert model.task("a", 5) == model.task("a", 0)


def test_an_empty_model_has_no_rounds(tmp_path: Path) -> None:
    """A run without clients is simulated to nothing."""
    model: Model = model_of(tmp_path, ([], 3.0))
    assert simulated(model, Change(deadline_s=1.0)) == ((), ())
