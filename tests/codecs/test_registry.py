"""Codecs by name, and codecs in a chain; with two codecs of our own to have something to chain."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import fedvitals.codecs as codecs
from fedvitals.codecs.chain import Chain
from fedvitals.codecs.contract import CodecContract
from fedvitals.codecs.identity import Identity
from fedvitals.codecs.protocol import Update, require_finite
from fedvitals.codecs.registry import PLANNED, unregister
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
        return Identity().encode({name: (t / self.step).round().to(torch.int32) for name, t in update.items()})

    def decode(self, data: bytes) -> dict[str, Tensor]:
        return {name: (t * self.step).to(torch.float32) for name, t in Identity().decode(data).items()}

    def error_bound(self, update: Update) -> float:
        return self.step * 0.51


@dataclass(frozen=True)
class Deflate:
    """Lossless packing of the identity's bytes."""

    lossless = True

    @property
    def config(self) -> dict[str, Any]:
        return {"id": "deflate"}

    def encode(self, update: Update) -> bytes:
        return zlib.compress(Identity().encode(update))

    def decode(self, data: bytes) -> dict[str, Tensor]:
        unzip = zlib.decompressobj()
        try:
            plain = unzip.decompress(data, 2**20)
        except zlib.error as error:
            raise CodecError(f"not deflated: {error}") from None
        if not unzip.eof:
            raise CodecError("cut off, or too large")
        return Identity().decode(plain)

    def error_bound(self, update: Update) -> float:
        return 0.0


@pytest.fixture(autouse=True)
def two_codecs() -> Iterator[None]:
    codecs.register("coarse", lambda argument: Coarse(float(argument or 0.5)))
    codecs.register("deflate", lambda argument: Deflate())
    yield
    unregister("coarse")
    unregister("deflate")


class TestCoarse(CodecContract):
    codec = Coarse(0.25)
    dtypes = (torch.float32,)


class TestChainOfTwo(CodecContract):
    codec = Chain((Coarse(0.25), Deflate()))
    dtypes = (torch.float32,)


class TestLosslessChain(CodecContract):
    codec = Chain((Deflate(), Deflate()))


def test_a_text_names_a_codec_with_its_argument() -> None:
    """`id`, `id:argument` and `a | b` parse, with blanks anywhere between."""
    assert codecs.parse("identity") == Identity()
    assert codecs.parse(" coarse : 0.125 ") == Coarse(0.125)
    assert codecs.parse("coarse:2|deflate") == Chain((Coarse(2.0), Deflate()))


def test_identity_in_a_chain_is_left_out() -> None:
    """It changes nothing, so it costs nothing."""
    assert codecs.parse("identity | deflate") == Deflate()
    assert codecs.parse("identity | identity") == Identity()


def test_a_lossy_codec_cannot_follow_another() -> None:
    """What follows the first sees bytes, and each one counts."""
    with pytest.raises(CodecError, match="'coarse' loses precision"):
        codecs.parse("deflate | coarse:1")


@pytest.mark.parametrize("id", PLANNED)
def test_planned_codecs_say_so(id: str) -> None:
    """An id of a later version is told apart from a spelling mistake."""
    with pytest.raises(CodecError, match=r"not available in this version; available: .*identity"):
        codecs.parse(f"{id}:8 | deflate")


def test_feedback_around_a_chain_is_named_as_planned() -> None:
    """The bracketed form gives the same answer, not one about brackets."""
    with pytest.raises(CodecError, match=r"feedback.* not available"):
        codecs.parse("feedback(topk:0.01 | quantize:8) | entropy")


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


@pytest.mark.parametrize("config", [{}, {"id": 3}, {"id": "identity", "argument": 3}, {"id": "chain", "stages": []}])
def test_a_bad_config_is_refused(config: dict[str, Any]) -> None:
    """What was kept of a run may be damaged."""
    with pytest.raises(CodecError):
        codecs.from_config(config)


def test_an_id_belongs_to_one_codec() -> None:
    """Registering twice, or under a name that the grammar cannot spell, is refused."""
    with pytest.raises(CodecError, match="already"):
        codecs.register("identity", lambda argument: Identity())
    with pytest.raises(CodecError, match="letters"):
        codecs.register("a|b", lambda argument: Identity())
    assert codecs.names() == ["bf16", "coarse", "deflate", "fp16", "identity", "quantize"]
