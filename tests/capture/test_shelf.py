"""The shelf: what lies on it stays as it was while anybody holds it, and its memory is used again."""

from __future__ import annotations

from collections import deque
from dataclasses import fields

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedvitals.capture.tensors import Flattener, Sketcher, kernel, named, summarise
from fedvitals.capture.tensors.shelf import MOST_PIECES, PIECE_BYTES, Shelf


@given(st.lists(st.integers(1, 300_000), min_size=1, max_size=60), st.integers(1, 8))
def test_nothing_is_written_over_that_somebody_holds(sizes: list[int], held: int) -> None:
    """Rows of all lengths, the last few of them held on to."""
    shelf, kept = Shelf(), deque[tuple[float, torch.Tensor]](maxlen=held)
    for number, size in enumerate(sizes):
        kept.append((float(number), shelf.row(torch.full((1, size), float(number)))))
        assert all((row == value).all() for value, row in kept)


def test_memory_is_used_again() -> None:
    """A thousand rows of which none is kept take one piece; of which three are, hardly more."""
    shelf = Shelf()
    for _ in range(1000):
        shelf.row(torch.ones(1, 5000))
    assert shelf.size_bytes <= 2 * PIECE_BYTES
    kept = deque[torch.Tensor](maxlen=3)
    for _ in range(1000):
        kept.append(shelf.row(torch.ones(1, 5000)))
    assert shelf.size_bytes <= 3 * PIECE_BYTES


def test_what_finds_no_room_stays_where_it_is() -> None:
    """More than a piece, more than all pieces, and what is no float32 of the processor's."""
    shelf = Shelf()
    large, half = torch.ones(1, PIECE_BYTES), torch.ones(1, 4, dtype=torch.float16)
    assert shelf.row(large) is large
    assert shelf.row(half) is half
    assert not shelf.holds(large)
    assert shelf.holds(shelf.row(torch.ones(1, 4)))
    rows = [torch.ones(PIECE_BYTES // 4) for _ in range(MOST_PIECES + 1)]
    kept = [shelf.row(row) for row in rows]
    assert [one is row for one, row in zip(kept, rows, strict=True)] == [False] * MOST_PIECES + [True]
    assert shelf.size_bytes == MOST_PIECES * PIECE_BYTES


@pytest.mark.skipif(not kernel.in_use(), reason="there is no compiled kernel: nothing is found out into a given place")
def test_a_summary_that_lies_here_is_the_same() -> None:
    """Every array of it, in one piece of the shelf, with its own type and shape; where there is no room, elsewhere."""
    flattener = Flattener({"a": torch.zeros(7, 5), "b": torch.zeros(7)})
    layout, shelf = flattener.layout, Shelf()
    rows = torch.randn(3, flattener.size, generator=torch.Generator().manual_seed(0))
    rows[1, 4] = torch.nan
    for sketcher, groups in ((Sketcher(layout, flattener.device), [1, 2]), (None, None)):
        known = summarise(rows, layout, sketcher, groups=groups)
        for room in (shelf.room, lambda size: None):
            found = named(kernel.find_out([rows], layout, sketcher, groups, room))
            for field in fields(known):
                one, other = getattr(known, field.name), getattr(found, field.name)
                assert (one is None) == (other is None), field.name
                if one is not None:
                    assert other.dtype == one.dtype
                    np.testing.assert_array_equal(one, other)
    assert shelf.size_bytes == PIECE_BYTES
