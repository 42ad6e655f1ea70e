"""Where values stand: each once, in rows and columns of its layer, in pieces of bounded size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedvitals.codecs.roundings import places as module
from fedvitals.codecs.roundings.places import pieces, places

MATRICES = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=5)


@given(MATRICES)
def test_every_value_is_looked_at_once(matrices: list[tuple[int, int]]) -> None:
    """The order is one of all values, and the parts are all of it."""
    found = places(tuple(matrices))
    size = sum(rows * columns for rows, columns in matrices)
    assert sorted(found.order.tolist()) == list(range(size))
    assert np.concatenate([found.order[part] for part in found.parts()]).tolist() == found.order.tolist()


@given(MATRICES)
def test_lines_are_the_rows_and_columns(matrices: list[tuple[int, int]]) -> None:
    """Values have the same row, or column, where they have the same number; no number is both."""
    found = places(tuple(matrices))
    rows, columns, _, _ = (line[np.argsort(found.order)] for line in found.lines)
    numbered = np.concatenate([np.arange(r * c) // c + 1000 * n for n, (r, c) in enumerate(matrices)])
    for own, wanted in ((rows, numbered), (columns, _columns(matrices))):
        assert len(set(zip(own.tolist(), wanted.tolist(), strict=True))) == len(set(own.tolist()))
        assert len(set(own.tolist())) == len(set(wanted.tolist()))
    assert not {*rows.tolist()} & {*columns.tolist()}


def test_layers_with_as_many_rows_share_them() -> None:
    """A matrix and a vector of 3 rows: row 1 is the same; a matrix of 4 rows has its own."""
    found = places(((3, 2), (3, 1), (4, 2)))
    _, _, rows, columns = (line[np.argsort(found.order)] for line in found.lines)
    assert rows[2] == rows[7]
    assert not {*rows[:9].tolist()} & {*rows[9:].tolist()}
    assert columns[1] == columns[10] != columns[7]


@given(MATRICES)
def test_pieces_hold_all_values_in_order(matrices: list[tuple[int, int]]) -> None:
    """However large a layer is; rows stay whole where they fit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST", 20)
        found = pieces(matrices)
    assert all(sum(rows * columns for rows, columns in piece) <= 20 for piece in found)
    assert sum(r * c for piece in found for r, c in piece) == sum(r * c for r, c in matrices)
    assert {columns for piece in found for _, columns in piece} <= {1, *(c for _, c in matrices if c <= 20)}


def _columns(matrices: list[tuple[int, int]]) -> np.ndarray:
    return np.concatenate([np.arange(r * c) % c + 1000 * number for number, (r, c) in enumerate(matrices)])
