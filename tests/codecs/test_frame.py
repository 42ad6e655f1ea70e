"""The container: what a forged frame may claim, and what it gets."""

from __future__ import annotations

import time
import tracemalloc
import zlib

import numpy as np
import pytest
import torch

from fedvitals.codecs import agreed, parse
from fedvitals.codecs.frame import MAX_ENTRIES, MAX_NAME_BYTES, VERSION, Layer, pack, unpack
from fedvitals.codecs.streams import FREE_TOLD, TOLD_A_BYTE, PlainSink, count_bytes, least_bytes
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
        (forged(b"\1" + layer(shape=(2**30,)), bytes(4)), "8589934592 bytes to read are claimed in a message of"),
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


EIGHT_MILLION = 8_000_000
SKEWED = bytes([1, 0, 2, *(0b10_000001, 0b0)])  # a table: the first symbol comes nearly always, the other hardly


def _table(body: bytes) -> bytes:
    """As `entropy` frames it: the plain side's length, that of what is coded, and both."""
    return count_bytes(len(body)) + count_bytes(0) + body


@pytest.mark.parametrize(
    ("spec", "body"),
    [
        ("grid:0.1 | entropy", b"\1\0\1"),  # at most one step, and nothing of any value
        ("grid:0.1", b"\1"),
        ("entropy", _table(SKEWED)),
        ("fp16 | entropy", _table(SKEWED)),
        ("grid:0.1 | zstd", None),
        ("grid:0.1 | entropy | zstd", None),
        ("entropy | zstd", None),
    ],
)
def test_a_forged_claim_is_refused_before_any_work(spec: str, body: bytes | None) -> None:
    """Eight million values in a few bytes, which a coder could stretch to them: refused in milliseconds."""
    frame = pack([Layer("w", torch.float32, (EIGHT_MILLION,))], body or _unfolding(spec))
    data = frame if body else parse("zstd").stages[0].parts["squeezing"].squeezed(frame)  # type: ignore[attr-defined]
    assert len(data) < 500
    began = time.process_time()
    tracemalloc.start()
    with pytest.raises(CodecError, match=r"values or more are claimed in|ends in the middle"):
        parse(spec).decode(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert time.process_time() - began < 0.2
    assert peak < (1_000_000 if body else 10_000_000)  # what zstd unfolds to is bounded by itself


HALVES, MANY_HALVES = Layer("w", torch.float16, (EIGHT_MILLION,)), Layer("w", torch.float16, (2**25 - 64,))
CUBE = Layer("w", torch.float32, (1000, 1000, 1000))


@pytest.mark.parametrize(
    ("spec", "layer", "body", "says"),
    [
        ("randomk:0.01", MANY_HALVES, b"seed", "268434944 bytes to read are claimed in a message of"),
        ("topk:0.5 | entropy", MANY_HALVES, b"seed", "268434944 bytes to read are claimed in a message of"),
        ("randomk:0.01", HALVES, b"seed", "ends in the middle"),
        ("randomk:0.01 | zstd", CUBE, b"seed" + bytes(2_000_000), "8000000000 bytes to read are claimed"),
    ],
)
def test_a_claim_is_judged_by_what_reading_it_takes(spec: str, layer: Layer, body: bytes, says: str) -> None:
    """Short types are worked out in long ones, places before values, and zeros unfold to any length."""
    frame = pack([layer], body)
    data = parse("zstd").stages[0].parts["squeezing"].squeezed(frame) if "zstd" in spec else frame  # type: ignore[attr-defined]
    tracemalloc.start()
    with pytest.raises(CodecError, match=says):
        parse(spec).decode(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000  # what zstd unfolds to is bounded by itself


def _unfolding(spec: str) -> bytes:
    """A body with as many bytes as honest ones would need, all of them zeros: zstd makes nothing of those."""
    zeros = bytes(2_000_000)
    if "entropy" not in spec:
        return b"\1" + zeros
    side = b"\1" if "grid" in spec else SKEWED
    return count_bytes(len(side)) + count_bytes(len(zeros)) + side + zeros


def _one_of(values: int) -> dict[str, torch.Tensor]:
    update = {"w": torch.zeros(values)}
    update["w"][values // 3] = 1.0
    return update


@pytest.mark.parametrize("spec", ["grid:0.1 | entropy", "entropy", "quantize:8 | entropy"])
def test_an_honest_message_of_next_to_nothing_is_read(spec: str) -> None:
    """One value of two million: filled up for a stranger, and not between ends that agreed; the same arrives."""
    update = _one_of(2_000_000)
    codec, between = parse(spec), agreed(parse(spec), update)
    whole, short = codec.encode(update), between.encode(update)
    assert least_bytes(2_000_000) <= len(whole) <= least_bytes(8_000_000) + len(short) + 20
    assert len(short) < 500
    assert torch.equal(codec.decode(whole)["w"], between.decode(short)["w"])
    with pytest.raises(CodecError):
        codec.decode(whole[:-1])


@pytest.mark.parametrize("spec", ["grid:0.1 | entropy", "entropy", "quantize:8 | entropy", "fp16 | entropy"])
def test_an_honest_message_of_nothing_stays_short(spec: str) -> None:
    """Eight million zeros are told as one, and take no time."""
    update = {"w": torch.zeros(EIGHT_MILLION)}
    data = parse(spec).encode(update)
    assert len(data) < 40
    assert not parse(spec).decode(data)["w"].any()


def test_what_a_squeezed_message_does_not_pay_for_is_not_sent() -> None:
    """What fills a message up is squeezed out of it again: the sender is told, and not the receiver."""
    update = _one_of(2_000_000)
    with pytest.raises(CodecError, match=r"codecs\.agreed"):
        parse("grid:0.1 | entropy | zstd").encode(update)
    codec = agreed(parse("grid:0.1 | entropy | zstd"), update)
    assert codec.decode(codec.encode(update))["w"].sum().item() == pytest.approx(1.0)


def test_ordinary_messages_are_not_filled_up() -> None:
    """A million values at a hundredfold come to the same bytes for strangers as for ends that agreed, header aside."""
    random = np.random.default_rng(0)
    values = torch.tensor((random.random(10**6) < 0.005) * random.normal(size=10**6), dtype=torch.float32)
    update = {"w": values}
    codec = parse("grid:0.1 | entropy")
    header = len(pack([Layer("w", torch.float32, (10**6,))], b"")) - 3
    assert len(codec.encode(update)) == len(agreed(codec, update).encode(update)) + header


def test_work_is_counted_where_it_is_told() -> None:
    """Free to begin with, then by the byte."""
    assert least_bytes(FREE_TOLD) == 0
    assert least_bytes(FREE_TOLD + 1) == 1
    assert least_bytes(FREE_TOLD + TOLD_A_BYTE + 1) == 2
    sink = PlainSink()
    sink.flags(np.ones(9, dtype=bool), np.full(9, 0.5))
    assert sink.told == 9
