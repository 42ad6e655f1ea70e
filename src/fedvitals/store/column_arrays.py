"""One compact blob -> its columns as arrays, without a Python number for each value."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, get_type_hints

from fedvitals.store.column_reader import Blob, checked
from fedvitals.store.columns import row_type

if TYPE_CHECKING:
    from numpy.typing import NDArray

WHOLE, NUMBER, TEXT = "<i8", "<f8", "O"
_KINDS = {int: WHOLE, int | None: NUMBER, float | None: NUMBER, float: NUMBER}
_LARGEST = (1 << 63) - 1


@lru_cache(maxsize=8)
def kinds_of(record: type) -> tuple[str, ...]:
    """For each field of a named tuple the kind of its array: whole numbers that are always there, others, texts."""
    return tuple(_KINDS.get(hint, TEXT) for hint in get_type_hints(record).values())


def unpack_arrays(data: bytes, rows: int, kinds: Sequence[str | None]) -> list[NDArray[Any]]:
    """The columns of a blob, each an array of its kind; those without a kind are left out."""
    return checked(lambda blob: _arrays(blob, kinds), data, rows, len(kinds))


def _arrays(blob: Blob, kinds: Sequence[str | None]) -> list[NDArray[Any]]:
    import numpy as np

    rows, codes = blob.rows, blob.row.format[1:]
    matrix = np.frombuffer(blob.data, row_type(codes), rows, blob.start)
    packed = {index: (place, base) for place, (index, base) in enumerate(zip(blob.places, blob.bases, strict=True))}
    words, texts, punched = dict(blob.words), dict(blob.texts), dict(blob.punched)
    found = []
    for index, kind in enumerate(kinds):
        if kind is None:
            continue
        if index in texts:
            column = _converted(texts[index], kind)
        elif index not in packed:
            column = np.repeat(_converted([blob.template[index]], kind), rows)
        elif index in words:
            column = _converted(words[index], kind)[matrix[str(packed[index][0])]]
        else:
            column = _numbers(matrix[str(packed[index][0])], packed[index][1], kind)
        if index in punched:
            column[~_there(punched[index], rows)] = None if kind == TEXT else np.nan
        found.append(column)
    return found


def _numbers(values: NDArray[Any], base: int, kind: str) -> NDArray[Any]:
    """Added as whole numbers, so that instants keep their last digits."""
    import numpy as np

    if base and values.dtype.kind != "f":
        values = values.astype(np.int64) + base
    return values.astype(kind)


def _converted(values: Sequence[Any], kind: str) -> NDArray[Any]:
    import numpy as np

    if kind == WHOLE:  # a number beyond the machine's is as large as can be
        values = [max(-_LARGEST - 1, min(int(one), _LARGEST)) for one in values]
    column = np.empty(len(values), kind)
    column[:] = values
    return column


def _there(bits: int, rows: int) -> NDArray[Any]:
    import numpy as np

    packed = np.frombuffer(bits.to_bytes((rows + 7) // 8, "little"), np.uint8)
    return np.unpackbits(packed, count=rows, bitorder="little").astype(bool)
