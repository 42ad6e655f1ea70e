"""Where the values of an update stand: of which layer, in which row, in which column.

Layers that have equally many rows mostly have the same ones (a gate's weights and its bias, a character's embedding and
its logit), and so with columns: what is seen of one layer's tells of the others'. Values are looked at in an order that
goes through all of it evenly, so that soon something is known of every row and column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
Labels = NDArray[np.int32]
Matrix = tuple[int, int]  # rows and columns

MOST = 2**18  # values that are looked at together: what is kept of them takes some 30 bytes each
FIRST_PART, GROWTH, LARGEST_SHARE = 128, 1.5, 24  # of the parts after which both ends look again
_SPREAD, _AGAIN = np.uint32(2654435769), np.uint32(2246822519)  # odd: no two numbers come to the same


@dataclass(frozen=True, slots=True)
class Places:
    """The values of some matrices, one after the other. All arrays are in the order in which values are looked at."""

    order: Indices
    layers: Labels
    lines: Labels  # [kinds, values]: rows, columns, and both of all layers that have as many
    bounds: tuple[int, ...]  # of the parts

    def parts(self) -> Iterator[slice]:
        for begin, end in pairwise(self.bounds):
            yield slice(begin, end)


def pieces(matrices: Sequence[Matrix]) -> list[tuple[Matrix, ...]]:
    """The same values in runs of at most MOST: large layers row after row."""
    found: list[list[Matrix]] = [[]]
    room = MOST
    for rows, columns in matrices:
        rows, columns = (rows, columns) if columns <= MOST else (rows * columns, 1)
        while rows * columns > 0:
            taken = min(rows, room // columns)
            if taken:
                found[-1].append((taken, columns))
            rows, room = rows - taken, room - taken * columns
            if rows:
                found.append([])
                room = MOST
    return [tuple(piece) for piece in found if piece]


@lru_cache(maxsize=8)
def places(piece: tuple[Matrix, ...]) -> Places:
    """Of one piece; every message of the same model asks for the same ones."""
    sizes = [rows * columns for rows, columns in piece]
    layers = np.repeat(np.arange(len(piece), dtype=np.int32), sizes)
    inside = [np.divmod(np.arange(rows * columns, dtype=np.int32), columns) for rows, columns in piece]
    order = _order(sum(sizes))
    lines: list[Labels] = []
    used = 0
    for shared in (False, True):
        for axis in (0, 1):
            own = _numbered([one[axis] for one in inside], [matrix[axis] for matrix in piece], shared)
            lines.append(own[order] + np.int32(used))
            used += int(own.max()) + 1
    return Places(order, layers[order], np.stack(lines), _bounds(sum(sizes)))


def _numbered(inside: Sequence[Labels], counts: Sequence[int], shared: bool) -> Labels:
    """Numbers that tell the lines of all matrices apart; or not those of matrices that have as many."""
    first: dict[int, int] = {}
    found, used = [], 0
    for number, (own, count) in enumerate(zip(inside, counts, strict=True)):
        key = count if shared else number
        if key not in first:
            first[key], used = used, used + count
        found.append(own + np.int32(first[key]))
    return np.concatenate(found)


def _order(size: int) -> Indices:
    """As if by chance, and the same everywhere."""
    numbers = np.arange(size, dtype=np.uint32) * _SPREAD
    numbers ^= numbers >> np.uint32(15)
    return np.argsort(numbers * _AGAIN, kind="stable")


def _bounds(size: int) -> tuple[int, ...]:
    """Short parts first, when each value tells most."""
    found, part = [0], float(FIRST_PART)
    while found[-1] < size:
        found.append(min(size, found[-1] + int(part)))
        part = max(min(part * GROWTH, size / LARGEST_SHARE), FIRST_PART)
    return tuple(found)
