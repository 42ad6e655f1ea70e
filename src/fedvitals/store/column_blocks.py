"""Columns of thousands of records -> the blobs of several blocks, all at once: what `columns.pack` makes of one block.

What a column needs is looked for once, for all blocks together, and their numbers are laid out as one matrix, of which
each block gets its rows. Columns with holes, or of numbers that are none of the machine's, are left to `columns.pack`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedvitals.store import columns
from fedvitals.store.columns import Draft, Same, Words

if TYPE_CHECKING:
    from numpy.typing import NDArray


def pack_blocks(fields: Sequence[Any], sql_types: Sequence[str], parts: Sequence[slice], rows: int) -> list[bytes]:
    """The columns of so many rows, cut into these parts. A column is a sequence, an array of int64 or float64, Words,
    or Same."""
    known = [_prepared(field, sql_type, rows) for field, sql_type in zip(fields, sql_types, strict=True)]
    if any(isinstance(field, list) for field in known):
        return [columns.pack(_cut(fields, part), sql_types, rows=part.stop - part.start) for part in parts]
    draft = Draft(rows)
    arrays: dict[str, dict[int, NDArray[Any]]] = {"i": {}, "f": {}}
    words: dict[int, Sequence[Any]] = {}
    for index, field in enumerate(known):
        if isinstance(field, Same):
            draft.add_constant(index, field.value)
        elif isinstance(field, Words):
            words[index], arrays["i"][index] = field.words, field.numbers
        else:
            arrays[field.dtype.kind][index] = field
    if arrays["i"]:
        columns.add_integers(draft, arrays["i"])
    if arrays["f"]:
        columns.add_floats(draft, arrays["f"])
    return _blobs(draft, words, parts)


def _prepared(field: Any, sql_type: str, rows: int) -> Any:
    """Same, an array or Words of a column; the column itself, as a list, where it is none of these."""
    if isinstance(field, Words) and (field.numbers == field.numbers[0]).all():
        return Same(field.words[field.numbers[0]])
    if isinstance(field, Same | Words) or hasattr(field, "dtype"):
        return field
    if columns.is_constant(field):
        return Same(field[0])
    if sql_type != "TEXT":
        try:
            return columns.numbers_of({0: field}, rows, "d" if sql_type == "REAL" else "q")[0]
        except struct.error:
            return list(field)
    known = columns.worded(field, rows)
    return list(field) if known is None else Words(known[0], columns.numbers_of({0: known[1]}, rows, "q")[0])


def _cut(fields: Sequence[Any], part: slice) -> list[Any]:
    return [field if isinstance(field, Same) else field[part] for field in fields]


def _blobs(draft: Draft, words: Mapping[int, Sequence[Any]], parts: Sequence[slice]) -> list[bytes]:
    """Of words, a block has those from the first to the last that it needs."""
    matrix = draft.matrix()
    places = {index: str(place) for place, index in enumerate(draft.bases)}
    found = []
    for part in parts:
        own = matrix[part]
        draft.words = []
        for index, some in words.items():
            numbers = own[places[index]]
            low, high = int(numbers.min()), int(numbers.max())
            numbers -= low
            draft.words.append((index, list(some[low : high + 1])))
        found.append(draft.header() + own.tobytes())
    return found
