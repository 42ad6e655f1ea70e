"""Which values of a layer come to anything at all: most of what an update that was rounded to a grid has to tell.

Rows that are seldom used (rare words, classes that a client does not have) and columns that never are (dark pixels)
have fewer such values than others. Where that pays, a value is expected to be there as often as those before it in its
row, or in its column, were: both ends have seen those, so nothing is sent about it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedvitals.codecs.streams import Flags, Shares, Sink, Source
from fedvitals.errors import CodecError

EVEN, BY_ROW, BY_COLUMN = range(3)  # the numbers are the format
WAYS = 3
DOUBT = 3.0  # values of the layer as a whole that a row's own weigh against
MOST_PARTS = 256  # after each of which both ends look again
PAYS = 0.97  # of the bits that it takes else, at most
_LEAST = 2.0**-14  # chance: nothing is quite impossible


def write(sink: Sink, there: Flags, shape: Sequence[int]) -> None:
    """Tell which are; `shape` is () where the values are in no rows."""
    taken, size = int(np.count_nonzero(there)), len(there)
    way = _best(there, shape, taken)
    sink.count(WAYS * taken + way)
    if taken in (0, size):
        return
    if way == EVEN:
        sink.symbols(there.astype(np.int32), 2, _shares(taken, size))
        return
    seen = _Seen(shape, way, taken)
    ordered = seen.ordered(there)
    for begin in range(0, size, seen.part):
        part = ordered[begin : begin + seen.part]
        sink.flags(part, seen.chances(len(part)))
        seen.look(part)


def read(source: Source, size: int, shape: Sequence[int]) -> Flags:
    """What `write` told."""
    taken, way = divmod(source.count(WAYS * size + WAYS - 1), WAYS)
    if taken in (0, size):
        return np.full(size, taken > 0)
    if way == EVEN:
        return source.symbols(size, 2, _shares(taken, size)).astype(bool)
    if not _has_rows(shape):
        raise CodecError("damaged update: it goes by the rows of a layer that has none")
    seen = _Seen(shape, way, taken)
    parts = []
    for begin in range(0, size, seen.part):
        part = source.flags(seen.chances(min(seen.part, size - begin)))
        seen.look(part)
        parts.append(part)
    return seen.restored(np.concatenate(parts))


class _Seen:
    """What both ends know of rows, or of columns: `places` of them, a part at a time."""

    def __init__(self, shape: Sequence[int], way: int, taken: int) -> None:
        rows, columns = shape[0], math.prod(shape[1:])
        self._matrix = (columns, rows) if way == BY_ROW else (rows, columns)  # as it is told: what is seen, last
        self._turned = way == BY_ROW
        lines, self._places = self._matrix
        self.part = -(-lines // MOST_PARTS) * self._places
        self._usual = DOUBT * (taken / (rows * columns))
        self._there: NDArray[np.float64] = np.zeros(self._places)
        self._lines = 0

    def ordered(self, there: Flags) -> Flags:
        return there.reshape(self._matrix[::-1]).T.reshape(-1) if self._turned else there

    def restored(self, ordered: Flags) -> Flags:
        return ordered.reshape(self._matrix).T.reshape(-1) if self._turned else ordered

    def chances(self, count: int) -> Shares:
        """Of the next values to be there. Only sums and quotients: the same bits at both ends."""
        one = (self._there + self._usual) / (self._lines + DOUBT)
        return np.tile(np.clip(one, _LEAST, 1.0 - _LEAST), count // self._places)

    def look(self, part: Flags) -> None:
        lines = part.reshape(-1, self._places)
        self._there += np.count_nonzero(lines, axis=0)
        self._lines += len(lines)


def _best(there: Flags, shape: Sequence[int], taken: int) -> int:
    """The way that is likely to take fewest bits: what each line's own share gives, and half its digits to learn it."""
    if not _has_rows(shape) or taken in (0, len(there)):
        return EVEN
    matrix = there.reshape(shape[0], -1)
    costs = {EVEN: PAYS * _bits(np.array([taken]), len(there))}
    for way, axis in ((BY_ROW, 1), (BY_COLUMN, 0)):
        counts, among = np.count_nonzero(matrix, axis=axis), matrix.shape[axis]
        costs[way] = _bits(counts, among) + len(counts) * 0.5 * math.log2(among)
    return min(costs, key=lambda way: costs[way])


def _bits(counts: NDArray[np.integer], among: int) -> float:
    shares = counts / among
    inside = shares[(shares > 0.0) & (shares < 1.0)]
    return float(-among * (inside * np.log2(inside) + (1.0 - inside) * np.log2(1.0 - inside)).sum())


def _shares(taken: int, size: int) -> Shares:
    return np.array([size - taken, taken], dtype=np.float64)


def _has_rows(shape: Sequence[int]) -> bool:
    return len(shape) > 1 and math.prod(shape) > 0
