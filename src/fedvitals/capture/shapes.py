"""Shapes of whatever was at hand when something failed: what one prints first when a training breaks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOST = 40


def shapes_of(value: Any, name: str = "") -> dict[str, str]:
    """Name to shape and type, of tensors and arrays however nested; never their values."""
    found: dict[str, str] = {}
    _collect(value, name, found, depth=0)
    return found


def _collect(value: Any, name: str, found: dict[str, str], depth: int) -> None:
    if len(found) >= MOST or depth > 4:
        return
    shape = getattr(value, "shape", None)
    if shape is not None and hasattr(value, "dtype"):
        found[name] = f"{tuple(shape)} {str(value.dtype).removeprefix('torch.')}"
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            _collect(inner, f"{name}.{key}" if name else str(key), found, depth + 1)
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            _collect(inner, f"{name}.{index}" if name else str(index), found, depth + 1)
    elif hasattr(value, "state_dict"):
        _collect(value.state_dict(), name, found, depth + 1)
