"""How many steps each value takes: told exactly, and in fewer bits where rows or columns differ."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedvitals import codecs
from fedvitals.codecs.roundings import places
from fedvitals.codecs.roundings.sizes import TOLD

GRID = codecs.parse("grid:1 | entropy")
Shape = tuple[int, ...]


@given(
    shapes=st.lists(st.lists(st.integers(0, 12), max_size=3), min_size=1, max_size=4),
    share=st.floats(0.0, 1.0),
    spread=st.sampled_from([1.0, 3.0, 40.0, 5e3]),
    spec=st.sampled_from(["grid:1 | entropy", "grid:1"]),
    most=st.sampled_from([16, 2**18]),
)
def test_what_is_told_is_what_is_there(
    shapes: list[list[int]], share: float, spread: float, spec: str, most: int
) -> None:
    """Any shapes, any share, any sizes, in either packing, in one piece or many."""
    random = np.random.default_rng(int(1e6 * share))
    update = {
        str(number): torch.tensor(np.trunc(spread * random.normal(size=shape)) * (random.random(shape) < share))
        for number, shape in enumerate(shapes)
    }
    codec = codecs.parse(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(places, "MOST", most)
        found = codec.decode(codec.encode(update))
    assert {name: tensor.tolist() for name, tensor in found.items()} == {
        name: tensor.tolist() for name, tensor in update.items()
    }


@pytest.mark.parametrize("turned", [False, True])
def test_rows_or_columns_that_are_alike_save_bytes(turned: bool) -> None:
    """A quarter of the rows, or columns, hold all that is there: far less than by the whole layer's share."""
    there = np.random.default_rng(1).random((64, 400)) < 0.2
    there[::2] = there[1::4] = False
    alike = there.T.copy() if turned else there
    mixed = np.random.default_rng(2).permutation(there.reshape(-1)).reshape(there.shape)
    assert _bytes(alike) < 0.72 * _bytes(mixed)


def test_rows_and_columns_count_together() -> None:
    """Where both differ, both save."""
    random = np.random.default_rng(3)
    rows, columns = random.random((2, 200)) < 0.25
    chances = 0.02 + 0.15 * rows[:, None] + 0.15 * columns + 0.5 * (rows[:, None] & columns)
    there = random.random((200, 200)) < chances
    by_row = np.stack([random.permutation(row) for row in there])
    assert _bytes(there) < 0.9 * _bytes(by_row)


def test_layers_with_as_many_rows_tell_of_each_other() -> None:
    """The same rows are busy in both: less than two such layers of which one has its rows in another order."""
    random = np.random.default_rng(4)
    busy = random.random(256) < 0.2
    first, second = (random.random((256, 8)) < np.where(busy, 0.5, 0.02)[:, None] for _ in range(2))
    shuffled = second[random.permutation(256)]
    assert _bytes(first, second) < 0.95 * _bytes(first, shuffled)


@pytest.mark.parametrize("share", [0.005, 0.05, 0.4])
def test_where_all_rows_are_alike_little_is_lost(share: float) -> None:
    """Within 2% and a few bytes of what places and signs are worth."""
    there = np.random.default_rng(5).permutation(128 * 400).reshape(128, 400) < share * 128 * 400
    worth = there.size * (-share * math.log2(share) - (1 - share) * math.log2(1 - share)) + there.sum()
    assert _bytes(there) < 1.02 * worth / 8 + 16


def test_larger_values_are_told_in_few_bits() -> None:
    """Of tens of steps, within a twentieth of what such numbers are worth."""
    values = np.random.default_rng(6).laplace(0.0, 30.0, 20_000)
    worth = 20_000 * math.log2(2 * math.e * 30.0) / 8
    assert len(GRID.encode({"w": torch.from_numpy(values)})) < 1.05 * worth
    assert np.abs(values).max() > TOLD


def test_layers_of_an_update_have_shares_of_their_own() -> None:
    """A small layer with many values that are there costs a large one with few nothing."""
    random = torch.Generator().manual_seed(3)
    small = torch.randn(500, generator=random)
    large = torch.where(torch.rand(8000, generator=random) < 0.01, 1.0, 0.0)
    codec = codecs.parse("grid:0.8 | entropy")
    together = len(codec.encode({"small": small, "large": large}))
    as_one = len(codec.encode({"all": torch.cat([small, large])}))
    assert together < 0.85 * as_one


def _bytes(*layers: np.ndarray) -> int:
    """Of messages that hold these values, up and down by chance."""
    random = np.random.default_rng(7)
    update = {
        str(number): torch.from_numpy(np.where(there, random.choice([-1.0, 1.0], there.shape), 0.0))
        for number, there in enumerate(layers)
    }
    return len(codecs.agreed(GRID, update).encode(update))
