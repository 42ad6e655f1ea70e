"""Which values of a layer are there: told exactly, and in fewer bits where rows or columns differ."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedvitals import codecs
from fedvitals.codecs.entropy import EntropySink, EntropySource
from fedvitals.codecs.roundings import presence
from fedvitals.codecs.streams import Flags, PlainSink, PlainSource
from fedvitals.errors import CodecError


@given(
    shape=st.lists(st.integers(0, 12), max_size=3),
    chances=st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0)),
    lines=st.booleans(),
    packed=st.booleans(),
)
def test_what_is_told_is_what_is_there(
    shape: list[int], chances: tuple[float, float], lines: bool, packed: bool
) -> None:
    """Any shape, any share, rows alike or not, in either packing."""
    random = np.random.default_rng(int(1e6 * chances[0]))
    share = np.where(random.random(shape[:1] or [1]) < 0.5, *chances) if lines else np.array(chances[:1])
    there = (random.random(shape) < share.reshape(-1, *[1] * (max(len(shape), 1) - 1))).reshape(-1)
    shown: EntropySink | PlainSink = EntropySink() if packed else PlainSink()
    presence.write(shown, there, shape)
    data = memoryview(shown.finished())
    source: EntropySource | PlainSource = EntropySource(data) if packed else PlainSource(data)
    assert presence.read(source, len(there), shape).tolist() == there.tolist()
    source.finish()


@pytest.mark.parametrize("turned", [False, True])
def test_rows_or_columns_that_are_alike_save_bytes(turned: bool) -> None:
    """A quarter of the rows, or columns, hold all that is there: far less than by the whole layer's share."""
    there = np.random.default_rng(1).random((64, 400)) < 0.2
    there[::2] = there[1::4] = False
    if turned:
        there = there.T.copy()
    assert _bytes(there.reshape(-1), there.shape) < 0.66 * _bytes(there.reshape(-1), ())


def test_where_all_rows_are_alike_nothing_is_lost() -> None:
    """The plain way is taken then: a byte more or less."""
    there = np.random.default_rng(2).random((64, 400)) < 0.05
    assert _bytes(there.reshape(-1), there.shape) <= _bytes(there.reshape(-1), ())


def test_a_message_by_rows_that_there_are_not_is_refused() -> None:
    """A stranger's: the layer is a vector, the message goes by rows."""
    sink = PlainSink()
    sink.count(presence.WAYS * 2 + presence.BY_ROW)
    with pytest.raises(CodecError, match="the rows of a layer that has none"):
        presence.read(PlainSource(sink.finished()), 8, (8,))


def test_layers_of_an_update_have_shares_of_their_own() -> None:
    """A small layer with many values that are there costs a large one with few nothing."""
    random = torch.Generator().manual_seed(3)
    small = torch.randn(500, generator=random)
    large = torch.where(torch.rand(8000, generator=random) < 0.01, 1.0, 0.0)
    codec = codecs.parse("grid:0.8 | entropy")
    together = len(codec.encode({"small": small, "large": large}))
    as_one = len(codec.encode({"all": torch.cat([small, large])}))
    assert together < 0.85 * as_one


def _bytes(there: Flags, shape: tuple[int, ...]) -> int:
    sink = EntropySink()
    presence.write(sink, there, shape)
    return len(sink.finished())
