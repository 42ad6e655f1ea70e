"""`fp16` and `bf16`: half of the bytes, and the error that was said."""

from __future__ import annotations

import pytest
import torch

from fedvitals import codecs
from fedvitals.codecs.contract import CodecContract
from fedvitals.codecs.frame import DTYPES
from fedvitals.codecs.halved import Halved
from fedvitals.errors import CodecError

REAL = tuple(dtype for dtype in DTYPES.values() if not dtype.is_complex)  # complex ones go through as they are


class TestFp16(CodecContract):
    """It keeps what every codec keeps."""

    codec = Halved("fp16")
    dtypes = REAL


class TestBf16(CodecContract):
    """It keeps what every codec keeps."""

    codec = Halved("bf16")
    dtypes = REAL
    largest = 1e30


@pytest.mark.parametrize("spec", ["fp16", "bf16"])
def test_floats_take_half_and_the_rest_is_as_it_was(spec: str) -> None:
    """Counts come back to the last bit; floats as their short format has them."""
    update = {"weight": torch.randn(1000), "seen": torch.tensor(7), "short": torch.randn(9).half()}
    codec = codecs.parse(spec)
    data = codec.encode(update)
    assert len(data) < 2 * 1000 + 8 + 18 + 150
    back = codec.decode(data)
    assert back["weight"].dtype is torch.float32
    assert torch.equal(back["weight"], update["weight"].to(torch.float16 if spec == "fp16" else torch.bfloat16).float())
    assert torch.equal(back["seen"], update["seen"])
    assert torch.equal(back["short"], update["short"])


def test_what_is_too_large_for_fp16_is_refused_by_name() -> None:
    """bf16 takes it: it has the range of float32."""
    update = {"fine": torch.ones(2), "large": torch.tensor([1e6])}
    with pytest.raises(CodecError, match="'large' has values beyond 65504"):
        codecs.parse("fp16").encode(update)
    assert float(codecs.parse("bf16").decode(codecs.parse("bf16").encode(update))["large"]) == pytest.approx(
        1e6, rel=0.01
    )


def test_it_takes_no_argument() -> None:
    """Nor is there another format."""
    with pytest.raises(CodecError, match="'fp16' takes no argument, found '8'"):
        codecs.parse("fp16:8")
    with pytest.raises(CodecError, match="no format 'fp8'"):
        Halved("fp8")
