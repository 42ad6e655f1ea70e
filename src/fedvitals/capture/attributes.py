"""Whatever a user hands over beside the numbers (metrics, attributes of a span) as bounded JSON.

It never fails, is never longer than 4,096 characters, and is always JSON that can be read back. Of tensors of more than
one value only shape and type are kept: attributes are no way for data to get out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from itertools import islice
from typing import Any

LONGEST = 4_096
MOST_ITEMS = 64
DEEPEST = 4
_RESERVED = 24  # room to say how much was left out
_MOST_BITS = 4_096  # json refuses numbers of more than 4,300 digits


def as_json(values: Mapping[Any, Any], first: str = "") -> str:
    """As many of the values as there is room for, after `first`: entries that are JSON already."""
    parts: list[str] = [first] if first else []
    room = LONGEST - _RESERVED - len(first)
    for key, value in islice(values.items(), MOST_ITEMS):
        part = _entry(key, value)
        if len(part) + 2 <= room:
            parts.append(part)
            room -= len(part) + 2
    left_out = len(values) - len(parts) + bool(first)
    if left_out:
        parts.append(f'"left_out": {left_out}')
    return "{" + ", ".join(parts) + "}"


def _entry(key: Any, value: Any) -> str:
    try:
        return json.dumps({_text(key): plain(value)})[1:-1]
    except Exception as error:  # a user's object may do anything
        return json.dumps({_text(key): f"<{type(value).__name__}: {type(error).__name__}>"})[1:-1]


def plain(value: Any, depth: int = 0) -> Any:
    """The value as JSON types. NaN and infinities, which JSON does not have, become text."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return int(value) if value.bit_length() <= _MOST_BITS else hex(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if depth >= DEEPEST:
        return "..."
    if isinstance(value, Mapping):
        return {_text(key): plain(inner, depth + 1) for key, inner in islice(value.items(), MOST_ITEMS)}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(inner, depth + 1) for inner in islice(value, MOST_ITEMS)]
    return _of_array(value, depth)


def _of_array(value: Any, depth: int) -> Any:
    """Tensors and numpy values of one element become numbers, bigger ones their shape."""
    shape = getattr(value, "shape", None)
    if shape is not None and hasattr(value, "dtype"):
        if math.prod(shape) == 1:
            return plain(value.item(), depth + 1)
        return f"{tuple(shape)} {str(value.dtype).removeprefix('torch.')}"
    return _text(value)


def _text(value: Any) -> str:
    try:
        return str(value)[:200]
    except Exception as error:
        return f"<{type(value).__name__}: {type(error).__name__}>"
