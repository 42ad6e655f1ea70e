"""The container that codecs write: which tensors there are, and a body that the codec alone can read.

    "FV", version, 2 * header bytes + whether they are deflated | count, then for each: name, type, shape | body

Between ends that have agreed on the layers it is three bytes and the body.
Counts take seven bits a byte. Frames come from clients: everything is bounded, and what a header claims is compared
with the bytes that are there, before any memory is taken. Integrity on the way is the transport's matter: there is no
checksum.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import torch

from fedvitals.codecs.streams import PlainSink, PlainSource
from fedvitals.errors import CodecError

MAGIC = b"FV"
VERSION = 3
MAX_HEADER_BYTES = 16 * 2**20
MAX_ENTRIES = 65_536
MAX_NAME_BYTES = 1024
MAX_DIMENSIONS = 15
MAX_VALUES = 2**32 - 1  # of one tensor: what a shape may claim
FREE_BYTES = 64 * 2**20  # of memory for values that any message may claim, however short it is
MOST_EXPANSION = 4096  # bytes beyond that, for each byte of the message
LEAST_READ_BYTES = 8  # a value, whatever its type: symbols, places and floats are worked out in as many

DTYPES: dict[int, torch.dtype] = {  # the numbers are the format: never reuse one; at most 15
    0: torch.float32,
    1: torch.float64,
    2: torch.float16,
    3: torch.bfloat16,
    4: torch.int8,
    5: torch.int16,
    6: torch.int32,
    7: torch.int64,
    8: torch.uint8,
    9: torch.bool,
    10: torch.complex64,
    11: torch.complex128,
}
CODES = {dtype: code for code, dtype in DTYPES.items()}


class Layer(NamedTuple):
    """One tensor of an update, without its values."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def values(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.values * self.dtype.itemsize

    @property
    def read_bytes(self) -> int:
        """What reading takes."""
        return self.values * max(self.dtype.itemsize, LEAST_READ_BYTES)


def pack(layers: Sequence[Layer], body: bytes) -> bytes:
    """The frame around a body."""
    if len(layers) > MAX_ENTRIES:
        raise CodecError(f"an update of {len(layers)} tensors; a frame takes at most {MAX_ENTRIES}")
    sink = PlainSink()
    sink.count(len(layers))
    for layer in layers:
        _describe(layer, sink)
    header = sink.finished()
    if len(header) > MAX_HEADER_BYTES:
        raise CodecError(f"names and shapes take {len(header)} bytes; a frame's header takes {MAX_HEADER_BYTES}")
    return b"".join((MAGIC, bytes([VERSION]), _with_length(header), body))


def unpack(data: bytes, sent_bytes: int | None = None) -> tuple[list[Layer], memoryview]:
    """The layers of a frame, and its body as a view into `data`. CodecError for anything but a frame. `sent_bytes` are
    those of the message, where this is what it was unsqueezed to."""
    if len(data) < len(MAGIC) + 1:
        raise CodecError(f"not an encoded update: {len(data)} bytes, the least is {len(MAGIC) + 3}")
    if data[: len(MAGIC)] != MAGIC:
        raise CodecError(f"not an encoded update: it begins with {data[: len(MAGIC)]!r} instead of {MAGIC!r}")
    if data[len(MAGIC)] != VERSION:
        raise CodecError(f"an encoded update of format {data[len(MAGIC)]}; this version reads format {VERSION}")
    source = PlainSource(memoryview(data)[len(MAGIC) + 1 :])
    header_bytes, deflated = divmod(source.count(2 * MAX_HEADER_BYTES + 1), 2)
    header = source.raw(header_bytes)
    layers = _parsed(_inflated(header) if deflated else header)
    claimed, sent = sum(layer.read_bytes for layer in layers), len(data) if sent_bytes is None else sent_bytes
    if claimed > most_claimed(sent):
        raise CodecError(
            f"damaged update: values that take {claimed} bytes to read are claimed in a message of {sent} bytes"
        )
    return layers, source.rest()


def most_claimed(message_bytes: int) -> int:
    """Bytes of memory that a message may claim from a receiver who does not know what to expect."""
    return FREE_BYTES + MOST_EXPANSION * message_bytes


def pack_known(layers: Sequence[Layer], body: bytes) -> bytes:
    """The frame for a receiver that knows which layers to expect: three bytes, which check that."""
    return _check(layers) + body


def unpack_known(layers: Sequence[Layer], data: bytes) -> memoryview:
    """The body of such a frame."""
    check = _check(layers)
    if data[: len(check)] != check:
        raise CodecError("not an update of this model: it was encoded for other layers, or is damaged")
    return memoryview(data)[len(check) :]


def _check(layers: Sequence[Layer]) -> bytes:
    return b"\0" + zlib.crc32(pack(layers, b"")).to_bytes(4, "little")[:2]


def require_known(layer: Layer) -> None:
    """Refuse a type that has no place in a frame."""
    if layer.dtype not in CODES:
        known = ", ".join(str(dtype).removeprefix("torch.") for dtype in CODES)
        raise CodecError(f"layer {layer.name!r} is {layer.dtype}, which cannot be written; known: {known}")


def _describe(layer: Layer, sink: PlainSink) -> None:
    try:
        name = layer.name.encode("utf-8")
    except UnicodeEncodeError as error:
        raise CodecError(f"the layer name {layer.name!r} is not valid text: {error.reason}") from None
    if len(name) > MAX_NAME_BYTES:
        raise CodecError(f"the layer name {layer.name[:40]!r}... has {len(name)} bytes; at most {MAX_NAME_BYTES}")
    require_known(layer)
    _check_shape(layer.name, layer.shape)
    sink.count(len(name))
    sink.raw(name + bytes([CODES[layer.dtype] << 4 | len(layer.shape)]))
    for size in layer.shape:
        sink.count(size)


def _check_shape(name: str, shape: Sequence[int]) -> None:
    """Refuse a shape that nobody means. Empty tensors are judged by their other dimensions: strides multiply."""
    if len(shape) > MAX_DIMENSIONS:
        raise CodecError(f"layer {name!r} has {len(shape)} dimensions; at most {MAX_DIMENSIONS} can be written")
    if math.prod(max(size, 1) for size in shape) > MAX_VALUES:
        raise CodecError(f"layer {name!r} has the shape {tuple(shape)}; at most {MAX_VALUES} values can be written")


def _with_length(header: bytes) -> bytes:
    """Deflated where that is shorter: names of layers repeat each other."""
    squeezer = zlib.compressobj(9, wbits=-15)
    squeezed = squeezer.compress(header) + squeezer.flush()
    sink = PlainSink()
    shorter = len(squeezed) < len(header)
    kept = squeezed if shorter else header
    sink.count(2 * len(kept) + shorter)
    sink.raw(kept)
    return sink.finished()


def _inflated(header: bytes) -> bytes:
    inflater = zlib.decompressobj(wbits=-15)
    try:
        plain = inflater.decompress(header, min(MAX_HEADER_BYTES, 1100 * len(header)))  # deflate's most is 1,032-fold
    except zlib.error as error:
        raise CodecError(f"damaged update: its header cannot be inflated ({error})") from None
    if not inflater.eof or inflater.unused_data:
        raise CodecError("damaged update: its header is cut off, or larger than any")
    return plain


def _parsed(header: bytes) -> list[Layer]:
    source = PlainSource(header)
    count = source.count(MAX_ENTRIES)
    layers = [_layer(source) for _ in range(count)]
    source.finish()
    if len({layer.name for layer in layers}) != count:
        raise CodecError("damaged update: two layers have the same name")
    return layers


def _layer(source: PlainSource) -> Layer:
    name_bytes = source.raw(source.count(MAX_NAME_BYTES))
    try:
        name = name_bytes.decode("utf-8")
    except UnicodeDecodeError:
        raise CodecError("damaged update: a layer name is not valid text") from None
    code, dimensions = divmod(source.raw(1)[0], 16)
    if code not in DTYPES:
        raise CodecError(f"damaged update: layer {name!r} has the unknown type number {code}")
    shape = tuple(source.count(MAX_VALUES) for _ in range(dimensions))
    _check_shape(name, shape)
    return Layer(name, DTYPES[code], shape)
