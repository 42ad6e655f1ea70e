"""Every codec, and chains of them, against the contract: any shape, type and value that Hypothesis finds."""

from __future__ import annotations

import pytest

from fedvitals import codecs
from fedvitals.codecs.contract import CodecContract
from fedvitals.codecs.frame import DTYPES

REAL = tuple(dtype for dtype in DTYPES.values() if not dtype.is_complex)  # complex ones go through as they are
HUGE = 1e30


class _Real(CodecContract):
    dtypes = REAL
    largest = HUGE


class TestIdentity(CodecContract):
    """Every bit of every type."""

    codec = codecs.parse("identity")


class TestZstd(CodecContract):
    codec = codecs.parse("zstd")


class TestEntropy(CodecContract):
    codec = codecs.parse("entropy")


class TestFp16(_Real):
    codec = codecs.parse("fp16")
    largest = 1e4


class TestBf16(_Real):
    codec = codecs.parse("bf16 | zstd:9")


class TestEightBits(_Real):
    codec = codecs.parse("quantize:8")


class TestThreeBitsByChance(_Real):
    codec = codecs.parse("quantize:3:stochastic")


class TestOneBitARow(_Real):
    """The least and the largest value of each row are all there is."""

    codec = codecs.parse("quantize:1:row | entropy")


class TestQsgd(_Real):
    codec = codecs.parse("qsgd:5 | entropy")


class TestTopK(_Real):
    codec = codecs.parse("topk:0.3")


class TestTopKOfEachLayer(_Real):
    codec = codecs.parse("topk:0.3:layer | bf16 | zstd")


class TestTopKByEnergy(_Real):
    codec = codecs.parse("topk:0.2:energy | quantize:4 | entropy")


class TestRandomK(_Real):
    codec = codecs.parse("randomk:0.4 | entropy")


class TestRandomKOfAll(_Real):
    codec = codecs.parse("randomk:0.4:update | quantize:5")


class TestThreshold(_Real):
    codec = codecs.parse("threshold:0.5 | quantize:2")


class TestThresholdOfEachLayer(_Real):
    codec = codecs.parse("threshold:1.5:layer | entropy")


class TestTernary(_Real):
    codec = codecs.parse("ternary:0.25 | entropy")


class TestTernaryOfEachLayer(_Real):
    codec = codecs.parse("ternary:0.25:layer | zstd")


class TestGrid(_Real):
    codec = codecs.parse("grid:0.25 | entropy")


class TestGridOfFewValues(_Real):
    """Values without the rows that they came from."""

    codec = codecs.parse("topk:0.3 | grid:0.25 | entropy")


class TestOneBit(_Real):
    codec = codecs.parse("onebit")


class TestLowRank(_Real):
    codec = codecs.parse("lowrank:1 | quantize:8 | entropy")


class TestFeedback(_Real):
    """Alone it is the codec inside."""

    codec = codecs.parse("feedback(topk:0.3 | quantize:6 | entropy, decay=0.9, momentum=0.5, bound=10)")


@pytest.mark.parametrize("id", [name for name in codecs.names() if name != "feedback"])
def test_every_codec_is_under_contract(id: str) -> None:
    """A codec that is added without a class here is noticed."""
    held = [str(one.codec.config) for one in (*CodecContract.__subclasses__(), *_Real.__subclasses__()) if one != _Real]
    assert any(f"'{id}'" in config for config in held)
