"""Whole cohorts of participations -> the columns of one block, without a row in between."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from fedvitals.store.columns import Same, Words
from fedvitals.vocabulary import Participation, Participations, spread

_MOST = 1 << 62
_NOTHING = Same(None)
_MACHINE = ("<i8", "<f8")


def joined(cohorts: Sequence[Participations]) -> dict[str, Any]:
    """The columns of all of them but the client, in the order of Participation's fields, each as `columns.pack` takes
    it."""
    told = frozenset[str]().union(*(one.columns for one in cohorts))
    counts = [one.count for one in cohorts]
    return {
        name: _column([one.columns.get(name) for one in cohorts], counts) if name in told else _NOTHING
        for name in Participation._fields[1:]
    }


def singly(records: Sequence[Participation | Participations]) -> list[Any]:
    """Those of whole cohorts one by one, among the others."""
    return [one for some in records for one in (some.rows() if isinstance(some, Participations) else (some,))]


def _column(parts: list[Any], counts: list[int]) -> Any:
    first = parts[0]
    kind = type(first)
    if all(type(part) is kind for part in parts):
        if kind is range:
            return _counted(parts)
        if kind in (list, tuple):
            return list(chain.from_iterable(parts))
        if hasattr(first, "dtype"):
            if first.ndim and first.dtype.str in _MACHINE and all(part.dtype == first.dtype for part in parts):
                return _concatenated(parts)
        elif parts.count(first) == len(parts):
            return Same(first)
        elif kind is int and all(-_MOST < part < _MOST for part in parts):
            return _repeated(parts, counts)
        elif kind is str and all(counts):
            return _worded(parts, counts)
    return list(chain.from_iterable(map(spread, parts, counts)))


def _concatenated(arrays: list[Any]) -> Any:
    import numpy as np

    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _repeated(values: list[int], counts: list[int]) -> Any:
    import numpy as np

    return np.repeat(np.array(values, np.int64), counts)


def _worded(values: list[str], counts: list[int]) -> Words:
    numbers = {word: number for number, word in enumerate(dict.fromkeys(values))}
    return Words(list(numbers), _repeated([numbers[word] for word in values], counts))


def _counted(ranges: list[range]) -> Any:
    import numpy as np

    return np.concatenate([np.arange(one.start, one.stop, one.step, dtype=np.int64) for one in ranges])
