"""Blocks of columns: exact, small, and safe to read from anywhere."""

from __future__ import annotations

import json
import math
import struct
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedvitals.errors import StoreError
from fedvitals.store import column_blocks, column_reader, columns
from fedvitals.store.awkward import FLOATS, INTEGERS, TEXTS, same
from fedvitals.store.seen import Seen

BY_TYPE = {
    "INTEGER": st.none() | INTEGERS | st.integers(),
    "REAL": st.none() | FLOATS,
    "TEXT": st.none() | TEXTS | st.sampled_from(("used", "late")),
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[tuple[Any, ...]]]:
    types = draw(st.lists(st.sampled_from(sorted(BY_TYPE)), min_size=1, max_size=5))
    rows = draw(st.lists(st.tuples(*[BY_TYPE[one] for one in types]), min_size=1, max_size=20))
    return types, rows


@settings(deadline=None)
@given(tables(), st.booleans(), st.data())
def test_what_was_packed_comes_back(
    table: tuple[list[str], list[tuple[Any, ...]]], quick: bool, data: st.DataObject
) -> None:
    """All columns come back as they were, and so does each row alone; numbers of any size included."""
    types, rows = table
    packed = columns.pack(list(zip(*rows, strict=True)), types, quick=quick)
    found = list(zip(*column_reader.unpack(packed, len(rows), len(types)), strict=True))
    assert same(found, rows)
    places = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=4))
    some = column_reader.unpack_rows(packed, len(rows), len(types), places)
    assert same([tuple(row) for row in some], [rows[place] for place in places])


@settings(deadline=None)
@given(tables(), st.data())
def test_what_was_packed_for_several_blocks_comes_back(
    table: tuple[list[str], list[tuple[Any, ...]]], data: st.DataObject
) -> None:
    """Each block has its own rows, whatever the columns are and wherever the blocks are cut."""
    types, rows = table
    rows = rows * data.draw(st.integers(1, 9))  # so that some text repeats
    fields = [_some_form(list(column), data) for column in zip(*rows, strict=True)]
    ends = sorted({0, len(rows), *data.draw(st.lists(st.integers(0, len(rows)), max_size=3))})
    parts = [slice(*pair) for pair in pairwise(ends)]
    for part, packed in zip(parts, column_blocks.pack_blocks(fields, types, parts, len(rows)), strict=True):
        found = column_reader.unpack(packed, part.stop - part.start, len(types))
        assert same(list(zip(*found, strict=True)), rows[part])


def _some_form(column: list[Any], data: st.DataObject) -> Any:
    """As a cohort may give it: an array, words and their numbers, one value for all, or as it is."""
    forms: list[Any] = [column]
    kinds = set(map(type, column))
    if kinds == {float} or (kinds == {int} and all(abs(value) < 1 << 62 for value in column)):
        forms.append(np.array(column, np.float64 if kinds == {float} else np.int64))
    if kinds == {str}:
        words = list(dict.fromkeys(column))
        forms.append(columns.Words(words, np.array([words.index(word) for word in column], np.int64)))
    if all(same(value, column[0]) for value in column):
        forms.append(columns.Same(column[0]))
    return data.draw(st.sampled_from(forms))


@settings(deadline=None)
@given(tables(), st.data())
def test_damage_is_an_error_or_harmless(table: tuple[list[str], list[tuple[Any, ...]]], data: st.DataObject) -> None:
    """Cut or changed bytes give a StoreError or other values, never another error."""
    types, rows = table
    packed = bytearray(columns.pack(list(zip(*rows, strict=True)), types))
    for place in data.draw(st.lists(st.integers(0, len(packed) - 1), max_size=4)):
        packed[place] = data.draw(st.integers(0, 255))
    broken = bytes(packed[: data.draw(st.integers(0, len(packed)))])
    with suppress(StoreError):
        assert len(column_reader.unpack(broken, len(rows), len(types))) == len(types)
    with suppress(StoreError):
        assert len(column_reader.unpack_rows(broken, len(rows), len(types), [0])) == 1


def blob(header: object, body: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<I", len(text)) + text + body


@pytest.mark.parametrize(
    "data",
    [
        b"",
        struct.pack("<I", 1 << 31),
        blob([]),
        blob([[0], [{"a": 1}], "", [], [], [], [], []]),
        blob([[0], [[[]]], "", [], [], [], [], []]),
        blob([[9], [1], "", [], [], [], [], []]),
        blob([[], [], "P", [0], [0], [], [], []], b"\0" * 8),
        blob([[], [], "999999999s", [0], [0], [], [], []]),
        blob([[], [], "BB", [0], [0], [], [], []], b"\0\0"),
        blob([[], [], "B", [0], [0], [[0, ["x"]]], [], []], b"\x05"),
        blob([[], [], "", [], [], [], [], [[0, 2]]], b"[]"),
        blob([[], [], "", [], [], [], [], [[0, -5]]], b"[1]"),
        blob([[], [], "B", [0], ["x"], [], [], []], b"\0"),
    ],
)
def test_hostile_blocks_are_refused(data: bytes) -> None:
    """Headers that lie about kinds, places or lengths are refused."""
    with pytest.raises(StoreError, match="damaged"):
        column_reader.unpack(data, 1, 1)
    with pytest.raises(StoreError, match="damaged"):
        column_reader.unpack_rows(data, 1, 1, [0])


def test_a_row_outside_is_refused() -> None:
    """A place beyond the block is an error, not another row's bytes."""
    packed = columns.pack([(1, 2, 300)], ["INTEGER"])
    for place in (-1, 3):
        with pytest.raises(StoreError):
            column_reader.unpack_rows(packed, 3, 1, [place])


@pytest.mark.parametrize(
    ("column", "sql_type", "most"),
    [
        ([7] * 500, "INTEGER", 0),
        ([None] * 500, "REAL", 0),
        (["used"] * 500, "TEXT", 0),
        (["used", "late"] * 250, "TEXT", 500),
        ([10**15 + index for index in range(500)], "INTEGER", 1000),
        ([index / 2 for index in range(500)], "REAL", 2000),
        ([index / 3 for index in range(500)], "REAL", 4000),
        ([None, 1.5] * 250, "REAL", 2063),
        ([math.nan, 1.5] * 250, "REAL", 2000),
    ],
)
def test_columns_take_no_more_than_they_need(column: list[Any], sql_type: str, most: int) -> None:
    """Constant columns cost a few bytes in all; others the smallest kind that holds them exactly."""
    packed = columns.pack([column], [sql_type])
    assert len(packed) <= most + 100
    assert same(list(column_reader.unpack(packed, len(column), 1)[0]), column)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12)), max_size=60), st.integers(0, 5), st.integers(0, 12))
def test_seen_never_forgets(arrivals: list[tuple[int, int]], most_holes: int, widest_gap: int) -> None:
    """A key that was added is always said to be seen; one that was not, never, while no hole had to be given up."""
    seen, plentiful = Seen(most_holes, widest_gap), Seen()
    keys = [group << 32 | number for group, number in arrivals]
    truth = [place for place, key in enumerate(keys) if key in keys[:place]]
    assert set(truth) <= set(seen.add(keys))
    assert plentiful.add(keys[:30]) + [30 + place for place in plentiful.add(keys[30:])] == truth
