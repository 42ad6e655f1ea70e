"""The container: what a forged frame may claim, and what it gets."""

from __future__ import annotations

import tracemalloc
import zlib

import pytest
import torch

from fedvitals.codecs import parse
from fedvitals.codecs.frame import MAX_ENTRIES, MAX_NAME_BYTES, VERSION, Layer, pack, unpack
from fedvitals.codecs.streams import count_bytes
from fedvitals.errors import CodecError

ONE = b"\0\0\x80\x3f"  # as a float32
START = b"FV" + bytes([VERSION])


def forged(header: bytes, body: bytes = b"", version: int = VERSION, deflated: bool = False) -> bytes:
    return b"FV" + bytes([version]) + count_bytes(2 * len(header) + deflated) + header + body


def layer(name: bytes = b"w", code: int = 0, shape: tuple[int, ...] = (1,)) -> bytes:
    sizes = b"".join(count_bytes(size) for size in shape)
    return count_bytes(len(name)) + name + bytes([code << 4 | len(shape)]) + sizes


def test_a_well_formed_forgery_is_read() -> None:
    """The forging used below makes valid frames, so that each refusal has the one reason under test."""
    (read,), body = unpack(forged(b"\1" + layer(), ONE))
    assert (read.name, read.dtype, read.shape, read.values) == ("w", torch.float32, (1,), 1)
    assert bytes(body) == ONE
    assert parse("identity").decode(forged(b"\1" + layer(), ONE))["w"].tolist() == [1.0]


BOMB = zlib.compress(bytes(64 * 2**20), wbits=-15)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "0 bytes"),
        (b"PK\x03\x04" + bytes(20), "begins with"),
        (forged(b"\0", version=9), "format 9"),
        (START + b"\xff\xff\xff\xff\x0f", "is claimed"),
        (START + b"\xff" * 20, "63 bits"),
        (START + b"\x7e", "ends in the middle"),
        (forged(count_bytes(MAX_ENTRIES + 1)), "65537 is claimed"),
        (forged(count_bytes(MAX_ENTRIES)), "ends in the middle"),
        (forged(b"\0x"), "1 bytes are left"),
        (forged(b"\2" + layer() * 2, bytes(8)), "same name"),
        (forged(b"\1" + layer(b"\xff"), bytes(4)), "not valid text"),
        (forged(b"\1" + layer(b"n" * (MAX_NAME_BYTES + 1)), bytes(4)), "1025 is claimed"),
        (forged(b"\1" + layer(code=13), bytes(4)), "unknown type"),
        (forged(b"\1" + layer(shape=(2**31, 2**31)), bytes(4)), "at most"),
        (forged(b"\1" + layer(shape=(0, 2**20, 2**20))), "at most"),
        (forged(b"\1" + layer(shape=(2**30,)), bytes(4)), "4294967296 bytes are claimed in a message of"),
        (forged(b"\1" + layer(shape=(2**20,)), bytes(4)), "ends in the middle"),
        (forged(b"\1" + layer(), bytes(5)), "1 bytes are left"),
        (forged(b"nonsense", deflated=True), "inflated"),
        (forged(BOMB[:40], deflated=True), "cut off"),
    ],
)
def test_a_forged_frame_is_refused_without_taking_memory(data: bytes, says: str) -> None:
    """Each impossible claim is named, and none makes the reader take more than a few kilobytes."""
    tracemalloc.start()
    with pytest.raises(CodecError, match=says):
        parse("identity").decode(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200_000


def test_a_header_that_would_unfold_without_end_is_cut_off() -> None:
    """It may take what the largest header takes, and no more."""
    with pytest.raises(CodecError, match="larger than any"):
        unpack(forged(BOMB, deflated=True))


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (Layer("\ud800", torch.float32, (0,)), "not valid text"),
        (Layer("n" * 2000, torch.float32, (0,)), "2000 bytes"),
        (Layer("w", torch.float8_e5m2, (0,)), "float8_e5m2, which cannot be written"),
        (Layer("w", torch.float32, (1,) * 20), "20 dimensions"),
    ],
)
def test_what_could_not_be_read_is_not_written(bad: Layer, says: str) -> None:
    """The writer keeps the limits of the reader and names the layer."""
    with pytest.raises(CodecError, match=says):
        pack([bad], b"")


def test_an_update_of_too_many_layers_is_refused() -> None:
    """The number of entries is bounded on the way in, too."""
    with pytest.raises(CodecError, match="at most 65536"):
        pack([Layer(str(n), torch.float32, (0,)) for n in range(MAX_ENTRIES + 1)], b"")


def test_names_that_repeat_each_other_take_little() -> None:
    """The header of a deep model is a small part of its message."""
    layers = [Layer(f"encoder.blocks.{n}.attention.{kind}", torch.float32, (8,)) for n in range(50) for kind in "qkvo"]
    assert len(pack(layers, b"")) < 6 * len(layers)
    assert unpack(pack(layers, b""))[0] == layers
