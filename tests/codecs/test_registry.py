"""Codecs by name; with a codec and a stage of our own."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import fedvitals.codecs as codecs
from fedvitals.codecs.contract import CodecContract
from fedvitals.codecs.protocol import Update, require_finite
from fedvitals.codecs.registry import unregister
from fedvitals.errors import CodecError


@dataclass(frozen=True)
class Coarse:
    """Rounds to multiples of a step: the plainest lossy codec."""

    step: float
    lossless = False

    @property
    def config(self) -> dict[str, Any]:
        return {"id": "coarse", "argument": str(self.step)}

    def encode(self, update: Update) -> bytes:
        require_finite(update)
        return codecs.parse("identity").encode(
            {name: (t / self.step).round().to(torch.int32) for name, t in update.items()}
        )

    def decode(self, data: bytes) -> dict[str, Tensor]:
        return {name: (t * self.step).to(torch.float32) for name, t in codecs.parse("identity").decode(data).items()}

    def error_bound(self, update: Update) -> float:
        return self.step * 0.51


class Deflate:
    """A squeezing of our own."""

    def squeezed(self, data: bytes) -> bytes:
        return zlib.compress(data)

    def restored(self, data: bytes, most: int) -> bytes:
        unzip = zlib.decompressobj()
        try:
            plain = unzip.decompress(data, most)
        except zlib.error as error:
            raise CodecError(f"not deflated: {error}") from None
        if not unzip.eof:
            raise CodecError("cut off, or too large")
        return plain


@pytest.fixture(autouse=True, scope="module")
def one_of_each() -> Iterator[None]:
    codecs.register("coarse", lambda argument: Coarse(float(argument or 0.5)))
    codecs.register("deflate", lambda argument: {"squeezing": Deflate()})
    yield
    unregister("coarse")
    unregister("deflate")


class TestCoarse(CodecContract):
    codec = Coarse(0.25)
    dtypes = (torch.float32,)


def test_a_text_names_a_codec_with_its_argument() -> None:
    """`id`, `id:argument` and `a | b` parse, with blanks anywhere between."""
    assert codecs.parse("identity").config == {"id": "identity"}
    assert codecs.parse(" coarse : 0.125 ") == Coarse(0.125)
    assert codecs.parse("topk:0.1|deflate") == codecs.parse(" topk : 0.1  | deflate ")
    assert codecs.parse("topk:0.1") != codecs.parse("topk:0.2")


def test_a_stage_of_our_own_takes_its_place_in_a_chain() -> None:
    """After whatever fills the slots before it."""
    update = {"w": torch.zeros(1000)}
    codec = codecs.parse("quantize:8 | deflate")
    assert len(codec.encode(update)) < 60
    assert torch.equal(codec.decode(codec.encode(update))["w"], update["w"])


def test_identity_in_a_chain_is_left_out() -> None:
    """It changes nothing, so it costs nothing."""
    assert codecs.parse("identity | deflate") == codecs.parse("deflate")
    assert codecs.parse("identity | identity") == codecs.parse("identity")


def test_a_whole_codec_stands_alone() -> None:
    """It writes updates, and leaves no slot to others."""
    with pytest.raises(CodecError, match="'coarse' writes whole updates: it stands alone"):
        codecs.parse("coarse:1 | deflate")


def test_a_stage_fills_slots_that_there_are() -> None:
    """A misspelt one is named."""
    codecs.register("odd", lambda argument: {"roundings": object()})
    try:
        with pytest.raises(CodecError, match=r"'odd' fills \['roundings'\]; a stage fills some of reduction"):
            codecs.parse("odd")
    finally:
        unregister("odd")


def test_feedback_goes_through_its_config() -> None:
    """With its ways, and the chain inside."""
    codec = codecs.parse("feedback(topk:0.01 | quantize:8, decay=0.5)")
    assert codecs.from_config(codec.config) == codec
    with pytest.raises(CodecError, match="feedback needs decay"):
        codecs.from_config({"id": "feedback", "inner": {"id": "topk", "argument": "0.1"}})


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("identiti", "did you mean 'identity'"),
        ("", "empty part"),
        ("deflate |", "empty part"),
        ("identity:3", "takes no argument, found '3'"),
        ("x" * 2000, "2000 characters"),
    ],
)
def test_a_bad_text_is_refused_saying_what_would_be_right(spec: str, says: str) -> None:
    """Spelling, emptiness, stray arguments and absurd lengths each get their message."""
    with pytest.raises(CodecError, match=says):
        codecs.parse(spec)


@pytest.mark.parametrize("config", [{}, {"id": 3}, {"id": "identity", "argument": 3}, {"id": "chain", "stages": [3]}])
def test_a_bad_config_is_refused(config: dict[str, Any]) -> None:
    """What was kept of a run may be damaged."""
    with pytest.raises(CodecError):
        codecs.from_config(config)


def test_an_id_belongs_to_one_codec() -> None:
    """Registering twice, or under a name that the grammar cannot spell, is refused."""
    with pytest.raises(CodecError, match="already"):
        codecs.register("identity", lambda argument: {})
    with pytest.raises(CodecError, match="letters"):
        codecs.register("a|b", lambda argument: {})
    with pytest.raises(CodecError, match="already"):
        codecs.register("topk", lambda argument: {})
