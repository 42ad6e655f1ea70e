"""Parts of a source, read in the background: in order, bounded, with the source's own errors, and stopped when done."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedvitals.errors import DataError
from fedvitals.train.data import load
from fedvitals.train.read_ahead import read_ahead
from fedvitals.train.sections import DataSpec

MODULE = "parts_of_a_test"
FUNCTIONS = """
import numpy as np

def _part(first, rows=8):
    return np.arange(4 * first, 4 * (first + rows), dtype=np.float32).reshape(rows, 4), np.arange(rows) % 2

def parts():
    for first in range(0, 40, 8):
        yield _part(first)

def named():
    for number in range(3):
        x, y = _part(8 * number)
        client = np.full(8, number)
        yield {"x_train": x, "y_train": y, "client": client, "client_names": np.array(["a", "b", "c"])}

def none():
    yield from ()

def breaks():
    yield _part(0)
    raise OSError("disk gone")

def uneven():
    yield _part(0)
    yield np.ones((8, 5), np.float32), np.arange(8) % 2

def others():
    yield _part(0)
    yield {"x_train": _part(0)[0], "y_train": _part(0)[1], "client": np.zeros(8, int)}
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / f"{MODULE}.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(tmp_path)
    yield MODULE
    sys.modules.pop(MODULE, None)


@given(st.lists(st.integers(), max_size=20), st.integers(1, 4))
def test_the_same_parts_in_the_same_order(parts: list[int], ahead: int) -> None:
    """However many may wait."""
    assert list(read_ahead(iter(parts), ahead)) == parts


def test_the_next_part_is_read_while_this_one_is_taken_in() -> None:
    """The source is asked for the second part before the first has been dealt with."""
    asked_again = threading.Event()

    def source() -> Iterator[int]:
        yield 1
        asked_again.set()
        yield 2

    parts = read_ahead(source())
    assert next(parts) == 1
    assert asked_again.wait(timeout=30)
    assert list(parts) == [2]


def test_it_reads_no_further_than_it_may() -> None:
    """With two that may wait, the source is never more than four ahead of who takes: two wait, one is in each hand."""
    given_out = [0]

    def source() -> Iterator[int]:
        for number in range(50):
            given_out[0] = number
            yield number

    assert all(given_out[0] - part <= 4 for part in read_ahead(source(), 2))
    assert given_out[0] == 49


def test_who_stops_early_stops_the_source() -> None:
    """No thread is left behind."""
    before = threading.active_count()
    parts = read_ahead(iter(range(1000)))
    assert next(parts) == 0
    parts.close()  # type: ignore[attr-defined]  # it is a generator
    assert threading.active_count() == before


def test_rows_in_parts_are_the_same_rows(source: str) -> None:
    """As one array would give them, with clients and their names."""
    rows = load(DataSpec(source=f"{source}:parts", scale="none"), 1)
    everything = np.concatenate([rows.x, rows.x_test])
    np.testing.assert_array_equal(np.sort(everything.ravel()), np.arange(160))
    named = load(DataSpec(source=f"{source}:named", partition="natural", clients=0), 1)
    assert named.client_names == ("a", "b", "c")
    assert named.client is not None
    assert len(named.client) == len(named.x)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("none", "gave no part; right is at least one"),
        ("breaks", "OSError in part 2: disk gone"),
        ("uneven", "its parts do not fit together"),
        ("others", "part 2 holds x_train, y_train, client; the first held x_train, y_train"),
    ],
)
def test_parts_that_cannot_be_used_are_named(source: str, name: str, words: str) -> None:
    """One DataError with the function's name and what was wrong."""
    with pytest.raises(DataError, match=words) as caught:
        load(DataSpec(source=f"{source}:{name}"), 1)
    assert f"{source}:{name}" in str(caught.value)
