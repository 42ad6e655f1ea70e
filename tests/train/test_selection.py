"""Choosing the clients of a round."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedvitals.errors import JobError
from fedvitals.train.selection import RandomSelection, Selection


@given(
    seed=st.integers(0, 2**31),
    round=st.integers(0, 1000),
    clients=st.lists(st.integers(0, 500), min_size=1, max_size=30, unique=True),
    k=st.integers(1, 40),
)
def test_the_chosen_are_k_of_those_present(seed: int, round: int, clients: list[int], k: int) -> None:
    """Sorted, distinct, present, as many as asked or as there are; the order they came in does not matter."""
    chosen = RandomSelection(seed).choose(round, clients, k)
    assert chosen == sorted(set(chosen))
    assert set(chosen) <= set(clients)
    assert len(chosen) == min(k, len(clients))
    assert RandomSelection(seed).choose(round, clients[::-1], k) == chosen


def test_rounds_and_seeds_choose_differently_and_fairly() -> None:
    """Over 600 rounds each of 12 clients is chosen about as often, and neither seed nor round is ignored."""
    selection: Selection = RandomSelection(42)
    choices = [tuple(selection.choose(number, range(12), 3)) for number in range(600)]
    counts = Counter(client for choice in choices for client in choice)
    assert set(counts) == set(range(12))
    assert all(100 < count < 200 for count in counts.values())
    assert [tuple(RandomSelection(43).choose(number, range(12), 3)) for number in range(600)] != choices


def test_a_round_of_nobody_is_refused() -> None:
    """Asking for no client is a mistake in the job."""
    with pytest.raises(JobError, match="at least one"):
        RandomSelection(1).choose(0, [1, 2], 0)
