"""Records by the hundred, as columns -> one compact blob. The way back is in column_reader.py.

A blob is the length of its header, the header (JSON), the numbers of all rows one row after the other, a bit a row for
columns with holes, and the columns kept as JSON. A column that is always empty or always the same takes a place in the
header alone; text that repeats is a number there; whole numbers are kept as their distance from the smallest, in as few
bytes as that needs; floats as float32 where that loses nothing.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, starmap
from typing import TYPE_CHECKING, Any

from fedvitals.store.plain import plain

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_ROWS = 4096
LENGTH = struct.Struct("<I")
_DTYPES = {"B": "<u1", "H": "<u2", "I": "<u4", "q": "<i8", "f": "<f4", "d": "<f8"}
_UNSIGNED = (("B", 1 << 8), ("H", 1 << 16), ("I", 1 << 32))

Column = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Same:
    """A column that has one value in every row."""

    value: Any


@dataclass(frozen=True, slots=True)
class Words:
    """A column of text that repeats: which of some words each row has."""

    words: Sequence[str | None]
    numbers: NDArray[Any]

    def __getitem__(self, part: slice) -> list[str | None]:
        return [self.words[number] for number in self.numbers[part].tolist()]


@dataclass(slots=True)
class Draft:
    """A blob in the making."""

    rows: int
    constant: dict[int, Any] = field(default_factory=dict)  # column -> value
    codes: str = ""  # of the numeric columns, as the struct module writes them
    bases: dict[int, int] = field(default_factory=dict)  # the same columns -> what is added to their numbers
    numbers: list[NDArray[Any]] = field(default_factory=list)
    rows_of_numbers: bytes | None = None  # the same, where they are packed already
    words: list[tuple[int, list[Any]]] = field(default_factory=list)  # column, what its numbers stand for
    holes: list[int] = field(default_factory=list)  # numeric columns that are empty in some rows
    bits: list[bytes] = field(default_factory=list)
    lengths: list[tuple[int, int]] = field(default_factory=list)  # column, bytes, of what is kept as JSON
    texts: list[bytes] = field(default_factory=list)

    def add_constant(self, index: int, value: Any) -> None:
        if value is not None:
            self.constant[index] = plain(value)

    def to_bytes(self) -> bytes:
        numbers = self.matrix().tobytes() if self.rows_of_numbers is None else self.rows_of_numbers
        return b"".join((self.header(), numbers, *self.bits, *self.texts))

    def header(self) -> bytes:
        """With its length before it."""
        flat = (
            list(self.constant),
            list(self.constant.values()),
            self.codes,
            list(self.bases),
            list(self.bases.values()),
        )
        parts = (*flat, self.words, self.holes, self.lengths)
        header = json.dumps(parts, separators=(",", ":")).encode()
        return LENGTH.pack(len(header)) + header

    def matrix(self) -> NDArray[Any]:
        """The numbers of all rows."""
        import numpy as np

        matrix = np.empty(self.rows, dtype=row_type(self.codes))
        for index, values in enumerate(self.numbers):
            matrix[str(index)] = values
        return matrix


@lru_cache(maxsize=256)
def row_type(codes: str) -> np.dtype[Any]:
    """The same row as numpy has it: its fields are called 0, 1, ..."""
    import numpy as np

    return np.dtype([(str(index), _DTYPES[code]) for index, code in enumerate(codes)])


@lru_cache(maxsize=256)
def row_struct(codes: str) -> struct.Struct:
    """The numbers of one row."""
    if not set(codes) <= set(_DTYPES):
        raise ValueError("unknown kind of number")
    return struct.Struct("<" + codes)


def pack(columns: Sequence[Any], sql_types: Sequence[str], *, rows: int | None = None, quick: bool = False) -> bytes:
    """The columns of at most MAX_ROWS rows as one blob. A column is a sequence, an array of int64 or float64, or Same.

    `quick` costs a third of the time and two times the room, for few rows that will be packed again.
    """
    draft = Draft(len(columns[0]) if rows is None else rows)
    integers: dict[int, Column] = {}
    floats: dict[int, Column] = {}
    arrays: dict[str, dict[int, NDArray[Any]]] = {"i": {}, "f": {}}
    for index, (column, sql_type) in enumerate(zip(columns, sql_types, strict=True)):
        if isinstance(column, Same):
            draft.add_constant(index, column.value)
        elif (kind := getattr(column, "dtype", None)) is not None:
            arrays[kind.kind][index] = column
        elif is_constant(column):
            draft.add_constant(index, column[0])
        elif sql_type == "REAL":
            floats[index] = column
        elif sql_type == "INTEGER":
            integers[index] = column
        elif (known := worded(column, draft.rows)) is not None:
            draft.words.append((index, known[0]))
            integers[index] = known[1]
        else:
            _pack_json(draft, index, column)
    if not (quick and _packed_as_they_are(draft, integers, floats)):
        _pack_numbers(draft, integers, add_integers)
        _pack_numbers(draft, floats, add_floats)
    if arrays["i"]:
        add_integers(draft, arrays["i"])
    if arrays["f"]:
        add_floats(draft, arrays["f"])
    return draft.to_bytes()


def _packed_as_they_are(draft: Draft, integers: dict[int, Column], floats: dict[int, Column]) -> bool:
    """Each number in eight bytes, without looking for less; False where one is none of the machine's."""
    codes = "q" * len(integers) + "d" * len(floats)
    numbers = integers | floats
    try:
        packed = b"".join(starmap(row_struct(codes).pack, zip(*numbers.values(), strict=True)))
    except struct.error:
        return False
    draft.codes, draft.rows_of_numbers = codes, packed
    draft.bases = dict.fromkeys(numbers, 0)
    return True


def is_constant(column: Column) -> bool:
    """Whether every value is the first; looks at the last before it counts, which most often is enough."""
    first, last = column[0], column[-1]
    return (first is last or first == last) and column.count(first) == len(column)


def worded(column: Column, rows: int) -> tuple[list[Any], list[int]] | None:
    """Text that repeats: its words, and the number of each row's. None where it does not repeat."""
    words = dict.fromkeys(column)
    if 4 * len(words) > rows + 12 or not all(type(word) is str or word is None for word in words):
        return None
    numbers = {word: number for number, word in enumerate(words)}
    return list(words), [numbers[word] for word in column]


Add = Callable[[Draft, Mapping[int, Any]], None]


def _pack_numbers(draft: Draft, columns: dict[int, Column], add: Add) -> None:
    """All columns at once, which is quickest; one by one where some have holes or are no numbers of the machine's."""
    if not columns:
        return
    try:
        add(draft, columns)
    except struct.error:
        for index, column in columns.items():
            if not _pack_holes(draft, index, column, add):
                _pack_json(draft, index, column)


def _pack_holes(draft: Draft, index: int, column: Column, add: Add) -> bool:
    filler = next(value for value in column if value is not None)
    try:
        add(draft, {index: [filler if value is None else value for value in column]})
    except struct.error:
        return False
    if None in column:
        draft.holes.append(index)
        draft.bits.append(_bits(column))
    return True


def add_integers(draft: Draft, columns: Mapping[int, Any]) -> None:
    table = numbers_of(columns, draft.rows, "q")
    lows, highs = table.min(axis=1).tolist(), table.max(axis=1).tolist()
    for index, values, low, high in zip(columns, table, lows, highs, strict=True):
        if low == high and hasattr(columns[index], "dtype"):  # of others this is known by now
            draft.constant[index] = low
            continue
        code = next((code for code, limit in _UNSIGNED if high - low < limit), "q")
        base = 0 if code == "q" else low
        draft.codes += code
        draft.bases[index] = base
        draft.numbers.append(values - base if base else values)


def add_floats(draft: Draft, columns: Mapping[int, Any]) -> None:
    import numpy as np

    table = numbers_of(columns, draft.rows, "d")
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = table.astype(np.float32).astype(np.float64)
    exact = (rounded.view(np.int64) == table.view(np.int64)).all(axis=1).tolist()  # bit by bit, so NaN is equal to NaN
    for index, values, single in zip(columns, table, exact, strict=True):
        draft.codes += "f" if single else "d"
        draft.bases[index] = 0
        draft.numbers.append(values)


def numbers_of(columns: Mapping[int, Any], rows: int, code: str) -> NDArray[Any]:
    """A row a column, of int64 or float64. struct.error when a value is no number of the machine's."""
    import numpy as np

    values = list(columns.values())
    if isinstance(values[0], np.ndarray):
        return np.stack(values)
    body = struct.pack(f"={rows * len(values)}{code}", *chain.from_iterable(values))
    return np.frombuffer(body, dtype=_DTYPES[code]).reshape(len(values), rows)


def _pack_json(draft: Draft, index: int, column: Column) -> None:
    body = json.dumps([plain(value) for value in column], separators=(",", ":")).encode()
    draft.lengths.append((index, len(body)))
    draft.texts.append(body)


def _bits(column: Column) -> bytes:
    """A bit a row, set where there is a value."""
    number = int("".join("0" if value is None else "1" for value in reversed(column)), 2)
    return number.to_bytes((len(column) + 7) // 8, "little")
