"""Choosing clients: what all ways have in common, and what each is for."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedvitals.errors import JobError
from fedvitals.train import sections
from fedvitals.train.selections import SELECTIONS, RandomSelection, Report, Selection, make

NAMES = sorted(SELECTIONS)


def _play(selection: Selection, turns: int, clients: int, k: int, reports: list[Report]) -> Counter[int]:
    """Who is asked how often, where each client always has the same to report."""
    counts: Counter[int] = Counter()
    for turn in range(turns):
        chosen = selection.choose(turn, range(clients), k)
        counts.update(chosen)
        for client in chosen:
            selection.heard(client, reports[client])
    return counts


def test_a_job_knows_the_same_names() -> None:
    """The names that a job may give are those that there are."""
    assert tuple(SELECTIONS) == sections.SELECTIONS


@pytest.mark.parametrize("floor", [0.0, 0.3])
@pytest.mark.parametrize("name", NAMES)
@given(
    seed=st.integers(0, 2**31),
    there=st.lists(st.sets(st.integers(0, 30), min_size=1), min_size=1, max_size=8),
    k=st.integers(1, 12),
    loss=st.sampled_from([None, 0.0, 0.7, float("nan"), float("inf")]),
)
def test_the_chosen_are_k_of_those_present(
    name: str, floor: float, seed: int, there: list[set[int]], k: int, loss: float | None
) -> None:
    """Sorted, distinct, present, as many as asked or as there are; a repeat, in any order, chooses the same."""
    one, other = (make(name, seed, 31, floor) for _ in range(2))
    for turn, present in enumerate(there):
        chosen = one.choose(turn, sorted(present), k)
        assert chosen == sorted(set(chosen))
        assert set(chosen) <= present
        assert len(chosen) == min(k, len(present))
        assert other.choose(turn, sorted(present, reverse=True), k) == chosen
        for client in chosen:
            report = Report(10, float(client), loss, client % 3)
            one.heard(client, report)
            other.heard(client, report)


@pytest.mark.parametrize("name", NAMES)
def test_a_round_of_nobody_is_refused(name: str) -> None:
    """Asking for no client is a mistake in the job."""
    with pytest.raises(JobError, match="at least one"):
        make(name, 1, 3).choose(0, [1, 2], 0)


def test_an_unknown_selection_is_refused_by_its_setting() -> None:
    """The message names the setting and the nearest that there is."""
    with pytest.raises(JobError, match=r"server\.selection.*oort"):
        make("ort", 1, 3)
    with pytest.raises(JobError, match=r'server\.selection = "ort" is not one of .*oort'):
        sections.ServerSpec(selection="ort")


def test_rounds_and_seeds_choose_differently_and_fairly() -> None:
    """By lot: over 600 rounds each of 12 clients is chosen about as often; neither seed nor round is ignored."""
    choices = [tuple(RandomSelection(42).choose(number, range(12), 3)) for number in range(600)]
    counts = Counter(client for choice in choices for client in choice)
    assert set(counts) == set(range(12))
    assert all(100 < count < 200 for count in counts.values())
    assert [tuple(RandomSelection(43).choose(number, range(12), 3)) for number in range(600)] != choices


def test_round_robin_asks_everybody_before_anybody_twice() -> None:
    """And who was away comes first when it is back."""
    selection = make("round-robin", 1, 7)
    assert [selection.choose(turn, range(7), 3) for turn in range(2)] == [[0, 1, 2], [3, 4, 5]]
    assert selection.choose(2, range(6), 3) == [0, 1, 2]  # 6 is away
    assert selection.choose(3, range(7), 3) == [3, 4, 6]


def test_who_is_seldom_there_is_asked_when_it_is() -> None:
    """Of twelve, two are there one time in five; by lot they would have a fifth of the others' turns."""
    selection = make("available", 3, 12)
    counts: Counter[int] = Counter()
    for turn in range(200):
        there = range(12) if turn % 5 == 0 else range(10)
        counts.update(selection.choose(turn, there, 4))
    rare, common = [counts[10], counts[11]], [counts[client] for client in range(10)]
    assert min(rare) >= 35  # of the 40 times that they were there
    assert max(common) - min(common) <= 2


@pytest.mark.parametrize(("busy", "away"), [(4, 5), (5, 4)])
def test_being_at_work_is_not_being_away(busy: int, away: int) -> None:
    """A client that was at work whenever clients were looked for does not count as seldom there."""
    selection = make("available", 3, 6)
    for turn in range(30):
        selection.choose(turn, [0, 1, 2, 3], 1, busy=[busy])
    assert selection.choose(30, [4, 5], 1) == [away]


def test_oort_prefers_clients_that_teach_more_and_are_quick() -> None:
    """Of equally quick clients those with high loss are asked more; of equal losses, the quick ones."""
    teaching = [Report(10, 1.0, 2.0 if client < 10 else 0.1) for client in range(40)]
    counts = _play(make("oort", 5, 40), 60, 40, 4, teaching)
    assert sum(counts[client] for client in range(10)) > 1.3 * 60  # a lot would give a quarter of 240
    quick = [Report(10, 1.0 if client < 20 else 10.0, 1.0) for client in range(40)]
    counts = _play(make("oort", 5, 40), 60, 40, 4, quick)
    assert sum(counts[client] for client in range(20)) > 1.4 * sum(counts[client] for client in range(20, 40))


def test_oort_gives_way_to_slower_clients_when_learning_slackens() -> None:
    """Where each window of rounds gathers less than the one before, the pace widens; where it gathers more, not."""
    from fedvitals.train.selections.oort import PACE_FIRST, OortSelection

    paces = []
    for change in (0.99, 1.01):
        selection = OortSelection(5, 40)
        for turn in range(100):
            for client in selection.choose(turn, range(40), 4):
                selection.heard(client, Report(10, 1.0 + client, change**turn))
        paces.append(selection.pace)
    assert paces[0] > PACE_FIRST
    assert paces[1] == PACE_FIRST


def test_oort_wears_nobody_out() -> None:
    """One client that has far more to teach than all others is not asked for ever."""
    reports = [Report(10, 1.0, 100.0 if client == 0 else 0.01) for client in range(20)]
    counts = _play(make("oort", 5, 20), 200, 20, 2, reports)
    assert counts[0] < 100


def test_oort_does_not_seek_out_clients_that_fail_at_once() -> None:
    """Failing soon is not being quick: who delivers gets more than by lot, and a place in each turn."""
    selection = make("oort", 1, 40)
    delivered = 0
    for turn in range(40):
        chosen = selection.choose(turn, range(40), 10)
        sound = [client for client in chosen if client >= 16]
        assert sound
        delivered += len(sound)
        for client in chosen:
            selection.heard(client, Report(30, 1.0 + client / 100, 2.0) if client >= 16 else Report(0, 1e-4))
    assert delivered > 0.6 * 10 * 40


def test_oort_turns_to_clients_that_come_in_time() -> None:
    """Latecomers are left alone even where the few others are worn out: of a round of them nothing would come."""
    counts = _play(
        make("oort", 1, 60),
        200,
        60,
        10,
        [Report(10, 1.0 + 0.001 * client, 1.0, late=client >= 12) for client in range(60)],
    )
    in_time = sum(counts[client] for client in range(12))
    assert in_time > 0.9 * sum(counts.values())


def test_pisces_prefers_fresh_updates_but_not_speed() -> None:
    """Of equal losses who comes stale is asked less; who is slow but fresh is not."""
    stale = [Report(10, 1.0, 1.0 + client / 1000, 0 if client < 10 else 24) for client in range(20)]
    counts = _play(make("pisces", 5, 20), 50, 20, 2, stale)
    assert all(counts[client] == 1 for client in range(10, 20))
    slow = [Report(10, 1.0 if client < 10 else 50.0, 1.0 if client < 10 else 1.1) for client in range(20)]
    counts = _play(make("pisces", 5, 20), 50, 20, 2, slow)
    assert sum(counts[client] for client in range(10, 20)) > sum(counts[client] for client in range(10))


def test_a_floor_keeps_everybody_in() -> None:
    """With a floor of a quarter, clients that Pisces would never ask again are asked over and over."""
    reports = [Report(10, 1.0, 1.0 if client < 4 else 0.01) for client in range(20)]
    without = _play(make("pisces", 5, 20), 100, 20, 4, reports)
    floored = _play(make("pisces", 5, 20, 0.25), 100, 20, 4, reports)
    assert min(without.values()) == 1
    assert min(floored[client] for client in range(20)) >= 5
    assert sum(floored.values()) == 400


def test_a_floor_of_single_places_has_its_share() -> None:
    """Asked one at a time, as in asynchronous training, one in four places is the floor's."""
    reports = [Report(10, 1.0, 1.0 if client == 0 else 0.01) for client in range(8)]
    counts = _play(make("pisces", 5, 8, 0.25), 80, 8, 1, reports)
    assert 20 <= sum(counts[client] for client in range(1, 8)) <= 27  # each of the seven is explored once at most
    assert counts[0] >= 53
