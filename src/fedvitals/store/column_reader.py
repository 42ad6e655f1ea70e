"""One compact blob -> the named tuples that columns.py packed. The file may come from anywhere: all is checked."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from fedvitals.errors import StoreError
from fedvitals.store.columns import LENGTH, MAX_ROWS, Column, row_struct

_SCALARS = frozenset((str, int, float, bool, type(None)))
_decode = json.JSONDecoder().decode

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Blob:
    """A blob whose header was read."""

    data: bytes
    rows: int
    start: int  # of the numbers
    template: list[Any]  # a row with the constant columns filled in
    row: struct.Struct
    places: list[int]  # the columns of the numbers
    bases: list[int]
    words: list[tuple[int, list[Any]]]
    punched: list[tuple[int, int]]  # column with holes, its bits as one number
    texts: list[tuple[int, list[Any]]]


def unpack(data: bytes, rows: int, width: int) -> list[Column]:
    """The columns of a blob that holds `width` of them, `rows` long."""
    return checked(_all_columns, data, rows, width)


def unpack_rows(data: bytes, rows: int, width: int, places: Sequence[int]) -> list[list[Any]]:
    """Some rows of a blob, without unpacking the others."""
    return checked(lambda blob: [_one_row(blob, place) for place in places], data, rows, width)


def checked(read: Callable[[Blob], Result], data: bytes, rows: int, width: int) -> Result:
    """What `read` makes of a blob; StoreError where it is no blob of ours."""
    try:
        return read(_opened(data, rows, width))
    except (struct.error, ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError) as error:
        raise StoreError(f"a block of records is damaged ({error}): restore the run from a copy") from error


def _opened(data: bytes, rows: int, width: int) -> Blob:
    (length,) = LENGTH.unpack_from(data)
    if not 0 < rows <= MAX_ROWS or length > len(data):
        raise ValueError(f"{rows} rows, header of {length} bytes")
    start = LENGTH.size + length
    same, values, codes, places, bases, words, holes, lengths = _decode(data[LENGTH.size : start].decode())
    _check_scalars(values)
    template = [None] * width
    for index, value in zip(same, values, strict=True):
        template[index] = value
    row = row_struct(codes)
    offset, size = start + row.size * rows, (rows + 7) // 8
    punched = []
    for index in holes:
        punched.append((index, int.from_bytes(data[offset : offset + size], "little")))
        offset += size
    texts = []
    for index, size in lengths:
        texts.append((index, _values(data[offset : offset + size], rows)))
        offset += size
    if offset != len(data):
        raise ValueError(f"{len(data)} bytes instead of {offset}")
    return Blob(data, rows, start, template, row, places, bases, words, punched, texts)


def _one_row(blob: Blob, place: int) -> list[Any]:
    if not 0 <= place < blob.rows:
        raise IndexError(f"row {place} of {blob.rows}")
    found = blob.template.copy()
    numbers = blob.row.unpack_from(blob.data, blob.start + blob.row.size * place)
    for index, base, value in zip(blob.places, blob.bases, numbers, strict=True):
        found[index] = base + value
    for index, words in blob.words:
        found[index] = words[found[index]]
    for index, bits in blob.punched:
        if not bits >> place & 1:
            found[index] = None
    for index, values in blob.texts:
        found[index] = values[place]
    return found


def _all_columns(blob: Blob) -> list[Column]:
    rows = blob.rows
    columns: list[Column] = [(value,) * rows for value in blob.template]
    if blob.places:
        numbers = blob.row.iter_unpack(memoryview(blob.data)[blob.start : blob.start + blob.row.size * rows])
        for index, base, column in zip(blob.places, blob.bases, zip(*numbers, strict=True), strict=True):
            columns[index] = [base + value for value in column] if base else column
    for index, words in blob.words:
        columns[index] = [words[number] for number in columns[index]]
    for index, bits in blob.punched:
        columns[index] = [value if bits >> place & 1 else None for place, value in enumerate(columns[index])]
    for index, values in blob.texts:
        columns[index] = values
    return columns


def _values(body: bytes, rows: int) -> list[Any]:
    values = _decode(body.decode())
    if not isinstance(values, list) or len(values) != rows:
        raise ValueError(f"{rows} values were expected")
    _check_scalars(values)
    return values


def _check_scalars(values: list[Any]) -> None:
    if not {type(value) for value in values} <= _SCALARS:
        raise TypeError("a value that is neither text nor a number")
