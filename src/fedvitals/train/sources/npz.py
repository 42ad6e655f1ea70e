"""A source: an .npz file. It is untrusted: headers are bounded before any array is read, nothing is unpickled."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import IO

import numpy as np

from fedvitals.errors import DataError
from fedvitals.train.sources.raw import KEYS, MAX_BYTES, Array, Raw, raw_from

MAX_NAMES_BYTES = 64_000_000  # of client names, class names or a vocabulary


def load(source: str) -> Raw:
    path = Path(source)
    if not path.is_file():
        raise DataError(f"data.source = {source!r}: there is no such file")
    try:
        with zipfile.ZipFile(path) as archive:
            there = archive.namelist()
            wanted = [key for key in KEYS if f"{key}.npy" in there]
            _refuse_large(source, {key: _header(source, archive, f"{key}.npy") for key in wanted})
            arrays = {key: _read(source, archive, f"{key}.npy") for key in wanted}
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError, RuntimeError) as error:
        raise DataError(f"{source} cannot be read as an .npz file: {error}") from error
    return raw_from(source, arrays, [name.removesuffix(".npy") for name in there])


def _header(source: str, archive: zipfile.ZipFile, member: str) -> tuple[tuple[int, ...], np.dtype[np.generic]]:
    """Shape and type that an array claims to have, from its first bytes."""
    with archive.open(member) as file:
        try:
            shape, dtype = _read_header(file)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
            raise DataError(f"{source}: {member} is not a plain array: {error}") from error
    if any(side < 0 for side in shape):
        raise DataError(f"{source}: {member} claims the shape {shape}, which cannot be")
    if dtype.hasobject:
        raise DataError(f"{source}: {member} holds Python objects, which are never unpickled; right are plain numbers")
    return shape, dtype


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[np.generic]]:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, _, dtype = np.lib.format.read_array_header_2_0(file)
    else:
        raise ValueError(f"format version {version}")
    return shape, dtype


def _refuse_large(source: str, headers: dict[str, tuple[tuple[int, ...], np.dtype[np.generic]]]) -> None:
    total = 0
    for key, (shape, dtype) in headers.items():
        count = 1
        for side in shape:
            count *= side
        rows = key in ("x_train", "x_test")
        total += count * max(dtype.itemsize, 4 if rows else 1)
        if not rows and not key.startswith("y_") and count * dtype.itemsize > MAX_NAMES_BYTES:
            raise DataError(
                f"{source}: {key} claims {count * dtype.itemsize:,} bytes; at most {MAX_NAMES_BYTES:,} are read"
            )
    if total > MAX_BYTES:
        raise DataError(f"{source}: its arrays claim {total:,} bytes in memory; at most {MAX_BYTES:,} are read")


def _read(source: str, archive: zipfile.ZipFile, member: str) -> Array:
    with archive.open(member) as file:
        try:
            return np.lib.format.read_array(file, allow_pickle=False)
        except (ValueError, zipfile.BadZipFile) as error:
            raise DataError(f"{source}: {member} is damaged: {error}") from error
