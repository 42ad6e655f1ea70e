"""A source: a user's own function, named `module:function`.

It is called with no argument, or with the `[data]` section when it takes one, and returns `(x, y)`, `(x_train, y_train,
x_test, y_test)`, or a dict with the keys of an .npz file. Arrays may be numpy's or torch's. A generator may give such
parts one after the other, each with rows of its own: the next is read in the background while this one is taken in.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from fedvitals.errors import DataError, JobError
from fedvitals.train.named import named_function
from fedvitals.train.read_ahead import read_ahead
from fedvitals.train.sections import DataSpec
from fedvitals.train.sources.raw import MAX_BYTES, Raw, raw_from

PLACES = ("x_train", "y_train", "x_test", "y_test")
OF_ALL = ("client_names", "class_names", "vocab")  # not a row each


def load(data: DataSpec) -> Raw:
    try:
        function = named_function(data.source, "data.source")
    except JobError as error:
        raise DataError(str(error)) from error
    try:
        given = function(data) if _takes_one(function) else function()
    except Exception as error:
        raise DataError(f"{data.source}: {type(error).__name__} when called: {error}") from error
    arrays = _of_parts(data.source, given) if isinstance(given, Iterator) else _arrays(data.source, given)
    return raw_from(data.source, arrays)


def _of_parts(origin: str, parts: Iterator[object]) -> dict[str, Any]:
    """All parts as one. Names of clients and tokens are the first part's: they hold for all."""
    found: list[dict[str, Any]] = []
    size = 0
    try:
        for part in read_ahead(parts):
            found.append(_arrays(origin, part))
            size += sum(array.nbytes for array in found[-1].values())
            if size > MAX_BYTES:
                raise DataError(f"{origin}: {len(found)} parts are {size} bytes; at most {MAX_BYTES} are taken in")
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{origin}: {type(error).__name__} in part {len(found) + 1}: {error}") from error
    if not found:
        raise DataError(f"{origin} gave no part; right is at least one (x, y)")
    for number, part in enumerate(found, start=1):
        if set(part) - set(OF_ALL) != set(found[0]) - set(OF_ALL):
            raise DataError(f"{origin}: part {number} holds {', '.join(part)}; the first held {', '.join(found[0])}")
    try:
        joined = {key: np.concatenate([part[key] for part in found]) for key in found[0] if key not in OF_ALL}
    except ValueError as error:
        raise DataError(f"{origin}: its parts do not fit together: {error}") from error
    return joined | {key: found[0][key] for key in OF_ALL if key in found[0]}


def _arrays(origin: str, given: object) -> dict[str, Any]:
    return {key: _array(origin, key, value) for key, value in _named(origin, given).items()}


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
