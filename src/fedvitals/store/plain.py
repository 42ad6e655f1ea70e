"""Any Python value -> something JSON can hold, without ever failing: configurations come from users."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

MAX_DEPTH = 24
MAX_TEXT = 1 << 20
_MAX_BITS = 4096  # json refuses numbers of more than 4,300 digits


def to_json(value: Any) -> str:
    """JSON as Python reads it back: NaN and infinities are written as such."""
    return json.dumps(plain(value), separators=(",", ":"))


def plain(value: Any, depth: int = 0) -> Any:
    """The value as JSON types; what has none becomes its text."""
    kind = type(value)
    if value is None or kind is bool or kind is float or kind is str:
        return value
    if kind is int:
        return value if value.bit_length() <= _MAX_BITS else hex(value)
    if depth >= MAX_DEPTH:
        return "..."
    if isinstance(value, Mapping):
        return {_text(key): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item, depth + 1) for item in value]
    return _number(value)


def _number(value: Any) -> Any:
    """Numbers of numpy and the like as Python's; anything else as text."""
    try:
        item = value.item() if hasattr(value, "item") else value
        if isinstance(item, bool | int | float):
            return plain(float(item) if isinstance(item, float) else int(item))
    except Exception:  # a user's object may do anything
        return _text(value)
    return _text(value)


def _text(value: Any) -> str:
    try:
        return str(value)[:MAX_TEXT]
    except Exception as error:  # a broken __str__ must not cost the record
        return f"<{type(value).__name__}: {type(error).__name__}>"
