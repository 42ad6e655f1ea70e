"""Named tuples by the hundred -> one compact blob -> the same tuples.

A blob is the length of its header, the header (JSON), the numbers of all rows one row after the other, a bit a row for
columns with holes, and the columns kept as JSON. A column that is always empty or always the same takes a place in the
header alone; whole numbers are kept as their distance from the smallest, in as few bytes as that needs; floats as
float32 where that loses nothing. Everything is checked when read: the file may come from anywhere.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import repeat
from typing import TYPE_CHECKING, Any

from fedvitals.errors import StoreError
from fedvitals.store.plain import plain

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_ROWS = 4096
_LENGTH = struct.Struct("<I")
_DTYPES = {"B": "<u1", "H": "<u2", "I": "<u4", "q": "<i8", "f": "<f4", "d": "<f8"}
_UNSIGNED = (("B", 1 << 8), ("H", 1 << 16), ("I", 1 << 32))

Column = Sequence[Any]


@dataclass(slots=True)
class _Draft:
    """A blob in the making."""

    rows: int
    constant: list[tuple[int, Any]] = field(default_factory=list)  # column, value
    codes: str = ""  # of the numeric columns, as the struct module writes them
    places: list[tuple[int, int]] = field(default_factory=list)  # column, base, of the same
    numbers: list[NDArray[Any]] = field(default_factory=list)
    holes: list[int] = field(default_factory=list)  # numeric columns that are empty in some rows
    bits: list[bytes] = field(default_factory=list)
    lengths: list[tuple[int, int]] = field(default_factory=list)  # column, bytes, of what is kept as JSON
    texts: list[bytes] = field(default_factory=list)

    def to_bytes(self) -> bytes:
        parts = (self.constant, self.codes, self.places, self.holes, self.lengths)
        header = json.dumps(parts, separators=(",", ":")).encode()
        return b"".join((_LENGTH.pack(len(header)), header, self._matrix(), *self.bits, *self.texts))

    def _matrix(self) -> bytes:
        import numpy as np

        matrix = np.empty(self.rows, dtype=_row_type(self.codes))
        for index, values in enumerate(self.numbers):
            matrix[str(index)] = values
        return matrix.tobytes()


@lru_cache(maxsize=256)
def _row_type(codes: str) -> np.dtype[Any]:
    import numpy as np

    return np.dtype([(str(index), _DTYPES[code]) for index, code in enumerate(codes)])


def pack(columns: Sequence[Column], sql_types: Sequence[str]) -> bytes:
    """The columns of at most MAX_ROWS rows as one blob."""
    draft = _Draft(len(columns[0]))
    for index, (column, sql_type) in enumerate(zip(columns, sql_types, strict=True)):
        first = column[0]
        if _is_constant(column):
            if first is not None:
                draft.constant.append((index, plain(first)))
        elif sql_type == "TEXT" or not _pack_numbers(draft, index, column, sql_type):
            _pack_json(draft, index, column)
    return draft.to_bytes()


def _is_constant(column: Column) -> bool:
    """Whether every value is the first; looks at the last before it counts, which most often is enough."""
    first, last = column[0], column[-1]
    return (first is last or first == last) and column.count(first) == len(column)


def _pack_numbers(draft: _Draft, index: int, column: Column, sql_type: str) -> bool:
    """Add a numeric column; False where it holds something that is no number of the machine's."""
    add = _add_integers if sql_type == "INTEGER" else _add_floats
    try:
        add(draft, index, column)
        return True
    except struct.error:
        pass
    present = [value is not None for value in column]
    filler = next((value for value in column if value is not None), 0)
    try:
        add(draft, index, [filler if value is None else value for value in column])
    except struct.error:
        return False
    draft.holes.append(index)
    draft.bits.append(_bits(present))
    return True


def _add_integers(draft: _Draft, index: int, column: Column) -> None:
    import numpy as np

    values = np.frombuffer(struct.pack(f"={draft.rows}q", *column), dtype=np.int64)
    low, high = int(values.min()), int(values.max())
    code = next((code for code, limit in _UNSIGNED if high - low < limit), "q")
    base = 0 if code == "q" else low
    draft.codes += code
    draft.places.append((index, base))
    draft.numbers.append(values - base if base else values)


def _add_floats(draft: _Draft, index: int, column: Column) -> None:
    import numpy as np

    body = struct.pack(f"={draft.rows}d", *column)
    values = np.frombuffer(body, dtype=np.float64)
    with np.errstate(over="ignore"):
        exact = values.astype(np.float32).astype(np.float64).tobytes() == body
    draft.codes += "f" if exact else "d"
    draft.places.append((index, 0))
    draft.numbers.append(values)


def _pack_json(draft: _Draft, index: int, column: Column) -> None:
    body = json.dumps([plain(value) for value in column], separators=(",", ":")).encode()
    draft.lengths.append((index, len(body)))
    draft.texts.append(body)


def _bits(present: Sequence[bool]) -> bytes:
    number = int("".join("1" if here else "0" for here in reversed(present)), 2)
    return number.to_bytes((len(present) + 7) // 8, "little")


def unpack(data: bytes, rows: int, width: int, pick: Sequence[int] | None = None) -> list[Column]:
    """The columns of a blob that holds `width` of them, `rows` long; `pick` takes only these rows."""
    try:
        return _unpack(data, rows, width, pick)
    except (struct.error, ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError) as error:
        raise StoreError(f"a block of records is damaged ({error}): restore the run from a copy") from error


def _unpack(data: bytes, rows: int, width: int, pick: Sequence[int] | None) -> list[Column]:
    (length,) = _LENGTH.unpack_from(data)
    if not 0 < rows <= MAX_ROWS or length > len(data):
        raise ValueError(f"{rows} rows, header of {length} bytes")
    start = _LENGTH.size + length
    constant, codes, places, holes, lengths = json.loads(data[_LENGTH.size : start])
    wanted = range(rows) if pick is None else pick
    columns: list[Column] = [(None,) * len(wanted)] * width
    for index, value in constant:
        columns[index] = tuple(repeat(_scalar(value), len(wanted)))
    numbers = _row_struct(codes)
    for (index, base), column in zip(places, _numbers(data, numbers, start, rows, pick), strict=True):
        columns[index] = [base + value for value in column] if base else column
    offset, size = start + numbers.size * rows, (rows + 7) // 8
    for index in holes:
        columns[index] = _punch(data[offset : offset + size], columns[index], wanted)
        offset += size
    for index, size in lengths:
        columns[index] = _texts(data[offset : offset + size], rows, wanted)
        offset += size
    return columns


@lru_cache(maxsize=256)
def _row_struct(codes: str) -> struct.Struct:
    if not set(codes) <= set(_DTYPES):
        raise ValueError("unknown kind of number")
    return struct.Struct("<" + codes)


def _numbers(
    data: bytes, row: struct.Struct, start: int, rows: int, pick: Sequence[int] | None
) -> Sequence[Column] | zip[Any]:
    if not row.size:
        return ()
    if len(data) < start + row.size * rows:
        raise ValueError("it ends too early")
    if pick is None:
        return zip(*row.iter_unpack(memoryview(data)[start : start + row.size * rows]), strict=True)
    return zip(*(row.unpack_from(data, start + row.size * index) for index in pick), strict=True)


def _punch(bits: bytes, column: Column, wanted: Sequence[int]) -> Column:
    number = int.from_bytes(bits, "little")
    return [value if number >> index & 1 else None for value, index in zip(column, wanted, strict=True)]


def _texts(body: bytes, rows: int, wanted: Sequence[int]) -> Column:
    values = json.loads(body)
    if not isinstance(values, list) or len(values) != rows:
        raise ValueError(f"{rows} values were expected")
    return [_scalar(values[index]) for index in wanted]


def _scalar(value: Any) -> Any:
    if value is not None and not isinstance(value, str | int | float):
        raise TypeError(f"a value of type {type(value).__name__}")
    return value
