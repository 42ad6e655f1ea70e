"""The container: what a forged frame may claim, and what it gets."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
import torch

from fedvitals.codecs import parse
from fedvitals.codecs.frame import MAX_ENTRIES, MAX_NAME_BYTES, Entry, pack, unpack
from fedvitals.errors import CodecError


def forged(header: bytes, payload: bytes = b"", version: int = 1) -> bytes:
    return struct.pack("<3sBI", b"FVU", version, len(header)) + header + payload


def entry(name: bytes = b"w", code: int = 0, shape: tuple[int, ...] = (1,), payload_bytes: int = 4) -> bytes:
    dims = struct.pack(f"<BB{len(shape)}I", code, len(shape), *shape)
    return struct.pack("<H", len(name)) + name + dims + struct.pack("<Q", payload_bytes)


def test_a_well_formed_forgery_is_read() -> None:
    """The forging used below makes valid frames, so that each refusal has the one reason under test."""
    (read,) = unpack(forged(struct.pack("<I", 1) + entry(), b"\0\0\x80\x3f"))
    assert (read.name, read.dtype, read.shape, read.values) == ("w", torch.float32, (1,), 1)
    assert parse("identity").decode(forged(struct.pack("<I", 1) + entry(), b"\0\0\x80\x3f"))["w"].tolist() == [1.0]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "0 bytes"),
        (b"PK\x03\x04" + bytes(20), "begins with"),
        (forged(struct.pack("<I", 0), version=9), "format 9"),
        (struct.pack("<3sBI", b"FVU", 1, 2**32 - 1), "is claimed"),
        (forged(struct.pack("<I", MAX_ENTRIES + 1)), "tensors are claimed"),
        (forged(struct.pack("<I", MAX_ENTRIES)), "in the middle of an entry"),
        (forged(struct.pack("<I", 0) + b"x"), "left in the header"),
        (forged(struct.pack("<I", 2) + entry() * 2, bytes(8)), "same name"),
        (forged(struct.pack("<I", 1) + entry(b"\xff"), bytes(4)), "not valid text"),
        (forged(struct.pack("<I", 1) + entry(b"n" * (MAX_NAME_BYTES + 1)), bytes(4)), "layer name"),
        (forged(struct.pack("<I", 1) + entry(code=200), bytes(4)), "unknown type"),
        (forged(struct.pack("<I", 1) + entry(shape=(1,) * 17), bytes(4)), "17 dimensions"),
        (forged(struct.pack("<I", 1) + entry(shape=(2**31, 2**31)), bytes(4)), "at most"),
        (forged(struct.pack("<I", 1) + entry(shape=(0, 2**20, 2**20)), b""), "at most"),
        (forged(struct.pack("<I", 1) + entry(shape=(2**30,)), bytes(4)), "takes 4294967296 bytes, 4 are there"),
        (forged(struct.pack("<I", 1) + entry(payload_bytes=2**60), bytes(4)), "are claimed"),
        (forged(struct.pack("<I", 1) + entry(), bytes(5)), "are claimed"),
    ],
)
def test_a_forged_frame_is_refused_without_taking_memory(data: bytes, says: str) -> None:
    """Each impossible claim is named, and none makes the reader take more than a few kilobytes."""
    tracemalloc.start()
    with pytest.raises(CodecError, match=says):
        parse("identity").decode(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (Entry("\ud800", torch.float32, (0,), b""), "not valid text"),
        (Entry("n" * 2000, torch.float32, (0,), b""), "2000 bytes"),
        (Entry("w", torch.float8_e5m2, (0,), b""), "float8_e5m2, which cannot be written"),
        (Entry("w", torch.float32, (1,) * 20, b""), "20 dimensions"),
    ],
)
def test_what_could_not_be_read_is_not_written(bad: Entry, says: str) -> None:
    """The writer keeps the limits of the reader and names the layer."""
    with pytest.raises(CodecError, match=says):
        pack([bad])


def test_an_update_of_too_many_layers_is_refused() -> None:
    """The number of entries is bounded on the way in, too."""
    with pytest.raises(CodecError, match="at most 65536"):
        pack([Entry(str(n), torch.float32, (0,), b"") for n in range(MAX_ENTRIES + 1)])
