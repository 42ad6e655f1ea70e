"""The contract of codecs as tests: subclass `CodecContract` in a test module and give it your codec.

    class TestMine(CodecContract):
        codec = Mine(8)
        dtypes = (torch.float32,)

Needs pytest and Hypothesis, so nothing but tests imports this.
"""

from __future__ import annotations

import json
from typing import ClassVar

import pytest
import torch
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedvitals.codecs.frame import DTYPES
from fedvitals.codecs.protocol import Codec
from fedvitals.codecs.registry import from_config
from fedvitals.errors import CodecError

# One test function serves every subclass (that is the point), and torch's first calls are slow.
_quick = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow],
)
LAYER_NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=24)


@st.composite
def tensors(draw: st.DrawFn, dtypes: tuple[torch.dtype, ...], largest: float | None = None) -> Tensor:
    """Any tensor: empty, scalar, strided; any bit pattern, or finite up to `largest` where that is given."""
    dtype = draw(st.sampled_from(dtypes))
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    count = int(torch.Size(shape).numel())
    raw = draw(st.binary(min_size=count * dtype.itemsize, max_size=count * dtype.itemsize))
    tensor = _from_bits(raw, dtype, shape)
    if largest is not None and dtype.is_floating_point:
        tensor = torch.where(tensor.isfinite() & (tensor.abs() <= largest), tensor, torch.ones_like(tensor))
    return tensor.transpose(0, -1) if tensor.dim() > 1 and draw(st.booleans()) else tensor


def updates(dtypes: tuple[torch.dtype, ...], largest: float | None = None) -> st.SearchStrategy[dict[str, Tensor]]:
    """Any update of up to four layers."""
    return st.dictionaries(LAYER_NAMES, tensors(dtypes, largest), max_size=4)


class CodecContract:
    """What every codec keeps; see `protocol` for the rules in words."""

    codec: ClassVar[Codec]
    dtypes: ClassVar[tuple[torch.dtype, ...]] = tuple(DTYPES.values())
    largest: ClassVar[float] = 1e4  # of the values that a lossy codec is tried with

    @_quick
    @given(data=st.data())
    def test_a_round_trip_stays_inside_the_stated_bound(self, data: st.DataObject) -> None:
        """Names, order, shapes and dtypes come back, and no value moved further than the codec said."""
        update = data.draw(updates(self.dtypes, None if self.codec.lossless else self.largest))
        decoded = self.codec.decode(self.codec.encode(update))
        assert list(decoded) == list(update)
        for name, tensor in update.items():
            assert decoded[name].shape == tensor.shape
            assert decoded[name].dtype == tensor.dtype
            if self.codec.lossless:
                assert _bits(decoded[name]) == _bits(tensor)
            else:
                moved = (decoded[name].double() - tensor.double()).abs()
                assert bool((moved <= self.codec.error_bound(update)).all())

    @_quick
    @given(data=st.data())
    def test_encoding_is_a_function_of_the_update(self, data: st.DataObject) -> None:
        """The same update gives the same bytes, and is left as it was."""
        update = data.draw(updates(self.dtypes, None if self.codec.lossless else self.largest))
        before = {name: _bits(tensor) for name, tensor in update.items()}
        assert self.codec.encode(update) == self.codec.encode(update)
        assert {name: _bits(tensor) for name, tensor in update.items()} == before

    def test_the_config_makes_an_equal_codec(self) -> None:
        """`config` goes through JSON and comes back as the same codec."""
        config = json.loads(json.dumps(self.codec.config))
        assert isinstance(config["id"], str)
        assert from_config(config) == self.codec

    @_quick
    @given(data=st.binary(max_size=200))
    @example(data=b"")
    @example(data=b"FVU\x01\xff\xff\xff\xff")
    def test_arbitrary_bytes_are_refused_or_read(self, data: bytes) -> None:
        """Bytes from a stranger give an update or a CodecError, nothing else."""
        _refused_or_read(self.codec, data)

    @_quick
    @given(data=st.data())
    def test_truncated_bytes_are_refused(self, data: st.DataObject) -> None:
        """Every proper beginning of an encoded update is refused as damaged."""
        encoded = self.codec.encode(data.draw(updates(self.dtypes, self.largest)))
        end = data.draw(st.integers(0, len(encoded) - 1))
        with pytest.raises(CodecError):
            self.codec.decode(encoded[:end])

    @_quick
    @given(data=st.data())
    def test_a_changed_byte_is_never_worse_than_an_error(self, data: st.DataObject) -> None:
        """Changing any byte of an encoded update gives another update or a CodecError, nothing else."""
        encoded = bytearray(self.codec.encode(data.draw(updates(self.dtypes, self.largest))))
        at = data.draw(st.integers(0, len(encoded) - 1))
        value = data.draw(st.integers(0, 255))
        assume(encoded[at] != value)
        encoded[at] = value
        _refused_or_read(self.codec, bytes(encoded))

    @pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
    def test_values_that_are_not_finite(self, bad: float) -> None:
        """A lossless codec passes them through; a lossy one refuses, naming the layer."""
        dtype = next(dtype for dtype in self.dtypes if dtype.is_floating_point)
        update = {"fine": torch.ones(3, dtype=dtype), "broken": torch.tensor([1.0, bad], dtype=dtype)}
        if self.codec.lossless:
            assert _bits(self.codec.decode(self.codec.encode(update))["broken"]) == _bits(update["broken"])
            return
        with pytest.raises(CodecError, match="broken"):
            self.codec.encode(update)


def _refused_or_read(codec: Codec, data: bytes) -> None:
    try:
        decoded = codec.decode(data)
    except CodecError:
        return
    assert all(isinstance(tensor, Tensor) for tensor in decoded.values())


def _from_bits(raw: bytes, dtype: torch.dtype, shape: list[int]) -> Tensor:
    if not raw:
        return torch.empty(shape, dtype=dtype)
    values = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
    return (values & 1 if dtype is torch.bool else values).view(dtype).reshape(shape)


def _bits(tensor: Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
