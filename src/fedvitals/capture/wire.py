"""Telemetry as bytes between a client and a server that trust each other with nothing.

    magic (4) | header length (4) | header: JSON | arrays, raw little-endian, in the header's order

Everything is bounded before it is parsed: the message, the header, every shape. Nothing is ever unpickled.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedvitals.errors import TelemetryError

MAGIC = b"FVT1"
MOST_BYTES = 16 * 2**20
MOST_HEADER = 2 * 2**20
MOST_ARRAYS = 16
DTYPES: dict[str, np.dtype[Any]] = {
    "f4": np.dtype("<f4"),
    "f2": np.dtype("<f2"),
    "i1": np.dtype("i1"),
    "i4": np.dtype("<i4"),
    "u4": np.dtype("<u4"),
}


def pack(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    """Header and arrays as one message."""
    described = [[name, _code(array), list(array.shape)] for name, array in arrays.items()]
    text = json.dumps({**header, "arrays": described}, allow_nan=True, default=str).encode()
    body = b"".join(np.ascontiguousarray(array).astype(DTYPES[_code(array)]).tobytes() for array in arrays.values())
    return MAGIC + struct.pack("<I", len(text)) + text + body


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and the arrays of a message; TelemetryError for anything that is not one."""
    header, rest = _header(data)
    arrays: dict[str, np.ndarray] = {}
    described = header.pop("arrays", [])
    if not isinstance(described, list) or len(described) > MOST_ARRAYS:
        raise TelemetryError(f"telemetry lists {_count(described)} arrays, at most {MOST_ARRAYS} are taken")
    for entry in described:
        name, dtype, shape = _described(entry)
        size = math.prod(shape) * dtype.itemsize
        if size > len(rest):
            raise TelemetryError(f"telemetry claims {size} bytes for {name!r} and has {len(rest)}")
        arrays[name] = np.frombuffer(rest[:size], dtype).reshape(shape)
        rest = rest[size:]
    if len(rest):
        raise TelemetryError(f"telemetry has {len(rest)} bytes more than it describes")
    return header, arrays


def _header(data: bytes) -> tuple[dict[str, Any], memoryview]:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TelemetryError(f"telemetry is {type(data).__name__}, not bytes")
    view = memoryview(data).cast("B")
    if len(view) > MOST_BYTES:
        raise TelemetryError(f"telemetry has {len(view)} bytes, at most {MOST_BYTES} are taken")
    if len(view) < 8 or bytes(view[:4]) != MAGIC:
        raise TelemetryError("telemetry does not begin as fedvitals telemetry does")
    (length,) = struct.unpack("<I", view[4:8])
    if length > min(MOST_HEADER, len(view) - 8):
        raise TelemetryError(f"telemetry claims a header of {length} bytes and has {len(view) - 8}")
    try:
        header = json.loads(bytes(view[8 : 8 + length]).decode())
    except (ValueError, RecursionError) as error:
        raise TelemetryError(f"telemetry's header is not JSON: {error}"[:300]) from error
    if not isinstance(header, dict):
        raise TelemetryError("telemetry's header is not an object")
    return header, view[8 + length :]


def _described(entry: Any) -> tuple[str, np.dtype[Any], tuple[int, ...]]:
    if not (isinstance(entry, list) and len(entry) == 3 and isinstance(entry[0], str) and isinstance(entry[2], list)):
        raise TelemetryError("telemetry describes an array as something else than [name, type, shape]")
    name, code, shape = entry
    dtype = DTYPES.get(code) if isinstance(code, str) else None
    if dtype is None:
        raise TelemetryError(f"telemetry's array {name[:40]!r} has the unknown type {str(code)[:20]!r}")
    if len(shape) > 4 or not all(type(side) is int and 0 <= side <= MOST_BYTES for side in shape):
        raise TelemetryError(f"telemetry's array {name[:40]!r} has an impossible shape")
    return name[:40], dtype, tuple(shape)


def _code(array: np.ndarray) -> str:
    return array.dtype.str.lstrip("<>|=")


def _count(value: Any) -> str:
    return str(len(value)) if isinstance(value, list) else f"a {type(value).__name__} of"
