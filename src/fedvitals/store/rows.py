"""Rare records as plain rows of STRICT tables, whatever values they hold.

SQLite keeps NaN as NULL and refuses numbers of more than 64 bits and half characters. A row says in its last column
which of its fields are NaN; other odd values become the nearest that can be kept.
"""

# ruff: noqa: S608  (table and column names are constants of ours; values are bound)

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from fedvitals.store.blocks import clamped
from fedvitals.store.schema import ROW_KINDS, TABLES, columns, required


def _quoted(field: tuple[str, str]) -> str:
    return f'"{field[0]}"'


_PYTHON_TYPES: dict[str, type] = {"TEXT": str, "INTEGER": int, "REAL": float}
_FITS: dict[type, Callable[[Any], bool]] = {
    str: str.isascii,
    int: lambda value: -(1 << 63) <= value < (1 << 63),
    float: lambda value: not math.isnan(value),
}
_FIELDS = {kind: tuple(columns(kind).items()) for kind in ROW_KINDS}
INSERTIONS = {  # of these kinds only Round has a key; the others never meet an equal one
    kind: f"INSERT OR REPLACE INTO {TABLES[kind]} VALUES ({', '.join('?' * (len(fields) + 1))})"
    for kind, fields in _FIELDS.items()
}
SELECTIONS = {
    kind: f"SELECT {', '.join(map(_quoted, fields))}, nan FROM {TABLES[kind]}" for kind, fields in _FIELDS.items()
}


_EXPECTED = {kind: tuple(_PYTHON_TYPES[sql_type] for _, sql_type in fields) for kind, fields in _FIELDS.items()}


def to_row(record: Sequence[Any]) -> tuple[Any, ...]:
    """A named tuple as its table takes it."""
    return (*record, None) if _is_plain(record) else _made_fit(record)


def _is_plain(record: Sequence[Any]) -> bool:
    """Whether SQLite takes every value as it is; nearly always, and found out in a third of the time of making sure."""
    for value, expected in zip(record, _EXPECTED[type(record)], strict=True):
        if value is not None and (type(value) is not expected or not _FITS[expected](value)):
            return False
    return True


def _made_fit(record: Sequence[Any]) -> tuple[Any, ...]:
    values: list[Any] = []
    nan: list[str] = []
    for (name, sql_type), value in zip(_FIELDS[type(record)], record, strict=True):
        if value is None:
            values.append(None)
        elif sql_type == "TEXT":
            values.append(value if type(value) is str and value.isascii() else keepable(value))
        elif sql_type == "INTEGER":
            values.append(clamped(int(value)))
        else:
            number = float(value)
            values.append(number)
            if math.isnan(number):
                nan.append(name)
    return (*values, ",".join(nan) or None)


def keepable(value: Any) -> str:
    """Text that UTF-8 can hold."""
    return str(value).encode("utf-8", "backslashreplace").decode("utf-8")


def from_row(kind: Any, row: Sequence[Any]) -> Any:
    """The named tuple of a row; ValueError where a field is empty that no record leaves empty."""
    record = kind._make(row[:-1])
    if row[-1] is not None:
        known = set(record._fields)
        record = record._replace(**{name: math.nan for name in row[-1].split(",") if name in known})
    missing = [name for name in required(kind) if getattr(record, name) is None] if None in record else ()
    if missing:
        raise ValueError(f"a row of table {TABLES[kind]} has no {missing[0]}")
    return record
