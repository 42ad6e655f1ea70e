"""A source: a user's own function, named `module:function`.

It is called with no argument, or with the `[data]` section when it takes one, and returns `(x, y)`, `(x_train, y_train,
x_test, y_test)`, or a dict with the keys of an .npz file. Arrays may be numpy's or torch's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fedvitals.errors import DataError, JobError
from fedvitals.train.named import named_function
from fedvitals.train.sections import DataSpec
from fedvitals.train.sources.raw import Raw, raw_from

PLACES = ("x_train", "y_train", "x_test", "y_test")


def load(data: DataSpec) -> Raw:
    try:
        function = named_function(data.source, "data.source")
    except JobError as error:
        raise DataError(str(error)) from error
    try:
        given = function(data) if _takes_one(function) else function()
    except Exception as error:
        raise DataError(f"{data.source}: {type(error).__name__} when called: {error}") from error
    named = _named(data.source, given)
    return raw_from(data.source, {key: _array(data.source, key, value) for key, value in named.items()})


def _takes_one(function: Callable[..., Any]) -> bool:
    """Whether it has a place for one positional argument that has no default."""
    places = inspect.signature(function).parameters.values()
    placed = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [one for one in places if one.default is one.empty and one.kind in placed]
    return len(needed) == 1


def _named(origin: str, given: object) -> dict[str, object]:
    if isinstance(given, Mapping):
        return {str(key): value for key, value in given.items()}
    if isinstance(given, tuple | list) and len(given) in (2, 4):
        return dict(zip(PLACES, given, strict=False))
    raise DataError(
        f"{origin} returned a {type(given).__name__}; right is (x, y), (x_train, y_train, x_test, y_test) or a dict "
        "with these keys"
    )


def _array(origin: str, key: str, value: object) -> Any:
    try:
        array = np.asarray(value)
    except Exception as error:
        raise DataError(f"{origin}: {key} cannot be made an array: {error}") from error
    if array.dtype == object:
        raise DataError(f"{origin}: {key} is ragged or holds objects; right is an array of numbers, all rows alike")
    return array
