"""Keys of many at once are those of each."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedvitals.randomness import key, keys


@given(st.integers(), st.text(), st.lists(st.tuples(st.text(), st.integers()), max_size=5))
def test_many_keys_are_the_same_as_one_by_one(seed: int, purpose: str, times: list[tuple[str, int]]) -> None:
    """The lower half of each, whatever the words."""
    one_by_one = np.array([key(seed, purpose, name, time) & (2**64 - 1) for name, time in times], np.uint64)
    assert np.array_equal(keys(seed, purpose, times), one_by_one)
