"""`quantize:BITS`: so many bits a value, evenly spaced."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedvitals import codecs
from fedvitals.codecs.contract import CodecContract
from fedvitals.codecs.frame import DTYPES, Entry, pack
from fedvitals.codecs.quantize import Quantize
from fedvitals.errors import CodecError

REAL = tuple(dtype for dtype in DTYPES.values() if not dtype.is_complex)  # complex ones go through as they are


class TestEightBits(CodecContract):
    """It keeps what every codec keeps."""

    codec = Quantize(8)
    dtypes = REAL


class TestThreeBits(CodecContract):
    """Where values do not end with bytes, too."""

    codec = Quantize(3)
    dtypes = REAL


class TestOneBit(CodecContract):
    """The least and the largest value are all there is."""

    codec = Quantize(1)
    dtypes = REAL


@given(st.integers(1, 8), st.integers(0, 70))
def test_values_take_just_their_bits(bits: int, count: int) -> None:
    """And sixteen bytes a layer, beside its name and shape."""
    update = {"weight": torch.arange(float(count))}
    codec = Quantize(bits)
    whole = 16 + -(-count * bits // 8) if count else 0
    empty = len(pack([Entry("weight", torch.float32, (count,), b"")]))
    assert len(codec.encode(update)) == empty + whole


def test_levels_are_evenly_spaced_and_reach_both_ends() -> None:
    """Two bits: four values from the least to the largest."""
    values = torch.tensor([-1.0, -0.4, 0.3, 0.9, 2.0])
    back = Quantize(2).decode(Quantize(2).encode({"a": values}))["a"]
    torch.testing.assert_close(back, torch.tensor([-1.0, 0.0, 0.0, 1.0, 2.0]))


def test_a_layer_of_one_value_comes_back() -> None:
    """There is no step to divide by."""
    update = {"bias": torch.full((5,), 0.25), "none": torch.zeros(0)}
    back = Quantize(4).decode(Quantize(4).encode(update))
    assert torch.equal(back["bias"], update["bias"])
    assert back["none"].shape == (0,)


@pytest.mark.parametrize(
    "spec", ["quantize", "quantize:", "quantize:x", "quantize:-1", "quantize:0", "quantize:9", "quantize:²"]
)
def test_other_bits_are_refused(spec: str) -> None:
    """With what would be right."""
    with pytest.raises(CodecError, match=r"quantize:8|1 to 8 bits"):
        codecs.parse(spec)


def test_a_range_that_cannot_be_is_damage() -> None:
    """Whoever sends it."""
    good = Quantize(8).encode({"a": torch.tensor([1.0, 2.0])})
    for low, high in ((2.0, 1.0), (float("nan"), 1.0), (float("-inf"), 1.0), (-1.7e308, 1.7e308)):
        payload = torch.tensor([low, high], dtype=torch.float64).numpy().tobytes() + b"\x00\xff"
        with pytest.raises(CodecError, match="claims to lie between"):
            Quantize(8).decode(pack([Entry("a", torch.float32, (2,), payload)]))
    assert len(good) > 0


def test_a_range_too_wide_to_divide_is_refused() -> None:
    """Its width is beyond the largest number."""
    with pytest.raises(CodecError, match="'a' spans"):
        Quantize(8).encode({"a": torch.tensor([-1.7e308, 1.7e308], dtype=torch.float64)})
