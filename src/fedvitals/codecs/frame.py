"""The container that codecs write: named, typed, shaped pieces of bytes.

    magic "FVU", version, header length | count, then for each entry: name, dtype, shape, payload length | payloads

Little-endian throughout. Frames come from clients: everything is bounded, and every length is compared with the bytes
that are there, before any memory is taken. Integrity on the way is the transport's matter: there is no checksum.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import NamedTuple

import torch

from fedvitals.errors import CodecError

MAGIC = b"FVU"
VERSION = 1
MAX_HEADER_BYTES = 16 * 2**20
MAX_ENTRIES = 65_536
MAX_NAME_BYTES = 1024
MAX_DIMENSIONS = 16
MAX_VALUES = 2**32 - 1  # of one tensor: what a shape may claim, whatever the payload

DTYPES: dict[int, torch.dtype] = {  # the numbers are the format: never reuse one
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

_PREFIX = struct.Struct("<3sBI")
_COUNT = struct.Struct("<I")
_NAME = struct.Struct("<H")
_KIND = struct.Struct("<BB")
_LENGTH = struct.Struct("<Q")


class Entry(NamedTuple):
    """One tensor's place in a frame. How the payload holds its values is the codec's matter."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    payload: bytes | memoryview

    @property
    def values(self) -> int:
        return math.prod(self.shape)


def pack(entries: Sequence[Entry]) -> bytes:
    """The frame of these entries."""
    if len(entries) > MAX_ENTRIES:
        raise CodecError(f"an update of {len(entries)} tensors; a frame takes at most {MAX_ENTRIES}")
    header = b"".join((_COUNT.pack(len(entries)), *(_described(entry) for entry in entries)))
    if len(header) > MAX_HEADER_BYTES:
        raise CodecError(f"names and shapes take {len(header)} bytes; a frame's header takes {MAX_HEADER_BYTES}")
    prefix = _PREFIX.pack(MAGIC, VERSION, len(header))
    return b"".join((prefix, header, *(entry.payload for entry in entries)))


def unpack(data: bytes) -> list[Entry]:
    """The entries of a frame; payloads are views into `data`. CodecError for anything but a whole frame."""
    view = memoryview(data)
    if len(view) < _PREFIX.size:
        raise CodecError(f"not an encoded update: {len(view)} bytes, the least is {_PREFIX.size}")
    magic, version, header_bytes = _PREFIX.unpack_from(view)
    if magic != MAGIC:
        raise CodecError(f"not an encoded update: it begins with {magic!r} instead of {MAGIC!r}")
    if version != VERSION:
        raise CodecError(f"an encoded update of format {version}; this version reads format {VERSION}")
    if header_bytes > min(MAX_HEADER_BYTES, len(view) - _PREFIX.size):
        raise CodecError(f"damaged update: a header of {header_bytes} bytes is claimed in {len(view)} bytes")
    body = _PREFIX.size + header_bytes
    return _with_payloads(_parsed_header(view[_PREFIX.size : body]), view[body:])


def check_shape(name: str, shape: Sequence[int]) -> None:
    """Refuse a shape that nobody means. Empty tensors are judged by their other dimensions: strides multiply."""
    if len(shape) > MAX_DIMENSIONS:
        raise CodecError(f"layer {name!r} has {len(shape)} dimensions; at most {MAX_DIMENSIONS} can be written")
    if math.prod(max(size, 1) for size in shape) > MAX_VALUES:
        raise CodecError(f"layer {name!r} has the shape {tuple(shape)}; at most {MAX_VALUES} values can be written")


def _described(entry: Entry) -> bytes:
    try:
        name = entry.name.encode("utf-8")
    except UnicodeEncodeError as error:
        raise CodecError(f"the layer name {entry.name!r} is not valid text: {error.reason}") from None
    if len(name) > MAX_NAME_BYTES:
        raise CodecError(f"the layer name {entry.name[:40]!r}... has {len(name)} bytes; at most {MAX_NAME_BYTES}")
    if entry.dtype not in CODES:
        known = ", ".join(str(dtype).removeprefix("torch.") for dtype in CODES)
        raise CodecError(f"layer {entry.name!r} is {entry.dtype}, which cannot be written; known: {known}")
    check_shape(entry.name, entry.shape)
    return b"".join(
        (
            _NAME.pack(len(name)),
            name,
            _KIND.pack(CODES[entry.dtype], len(entry.shape)),
            struct.pack(f"<{len(entry.shape)}I", *entry.shape),
            _LENGTH.pack(len(entry.payload)),
        )
    )


class _Cursor:
    """Reads a header from the front, never past its end."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._at = 0

    def take(self, size: int) -> memoryview:
        if size > len(self._view) - self._at:
            raise CodecError("damaged update: its header ends in the middle of an entry")
        self._at += size
        return self._view[self._at - size : self._at]

    def at_end(self) -> bool:
        return self._at == len(self._view)


def _parsed_header(view: memoryview) -> list[tuple[str, torch.dtype, tuple[int, ...], int]]:
    cursor = _Cursor(view)
    (count,) = _COUNT.unpack(cursor.take(_COUNT.size))
    if count > MAX_ENTRIES:
        raise CodecError(f"damaged update: {count} tensors are claimed; at most {MAX_ENTRIES} are read")
    entries = [_parsed_entry(cursor) for _ in range(count)]
    if not cursor.at_end():
        raise CodecError(f"damaged update: bytes are left in the header after {count} entries")
    if len({entry[0] for entry in entries}) != count:
        raise CodecError("damaged update: two layers have the same name")
    return entries


def _parsed_entry(cursor: _Cursor) -> tuple[str, torch.dtype, tuple[int, ...], int]:
    (name_bytes,) = _NAME.unpack(cursor.take(_NAME.size))
    if name_bytes > MAX_NAME_BYTES:
        raise CodecError(f"damaged update: a layer name of {name_bytes} bytes; at most {MAX_NAME_BYTES} are read")
    try:
        name = bytes(cursor.take(name_bytes)).decode("utf-8")
    except UnicodeDecodeError:
        raise CodecError("damaged update: a layer name is not valid text") from None
    code, dimensions = _KIND.unpack(cursor.take(_KIND.size))
    if code not in DTYPES:
        raise CodecError(f"damaged update: layer {name!r} has the unknown type number {code}")
    if dimensions > MAX_DIMENSIONS:
        raise CodecError(f"damaged update: layer {name!r} has {dimensions} dimensions; at most {MAX_DIMENSIONS}")
    shape = struct.unpack(f"<{dimensions}I", cursor.take(4 * dimensions))
    check_shape(name, shape)
    (payload_bytes,) = _LENGTH.unpack(cursor.take(_LENGTH.size))
    return name, DTYPES[code], shape, payload_bytes


def _with_payloads(
    header: Sequence[tuple[str, torch.dtype, tuple[int, ...], int]], payloads: memoryview
) -> list[Entry]:
    claimed = sum(payload_bytes for *_, payload_bytes in header)
    if claimed != len(payloads):
        raise CodecError(f"damaged update: values of {claimed} bytes are claimed, {len(payloads)} are there")
    entries, at = [], 0
    for name, dtype, shape, payload_bytes in header:
        entries.append(Entry(name, dtype, shape, payloads[at : at + payload_bytes]))
        at += payload_bytes
    return entries
