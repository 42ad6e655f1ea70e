"""`grid:STEP`: each value as a whole number of steps; what is smaller than three quarters of one does not travel.

Most values come to nothing, so put `entropy` after it; and `feedback(...)` around it, which keeps what is left of each
value until it makes a step: then nobody is ever further than a step from the truth, in any value. Sums of such updates
lie on the same grid, so several are one message of the same kind: a client that missed ten steps of the server takes in
their sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedvitals.codecs.frame import Layer
from fedvitals.codecs.numbers import Floats
from fedvitals.codecs.streams import Shares, Sink, Source
from fedvitals.errors import CodecError

FEW = 2**15  # values that share what is told of how often numbers come; of more, each layer has its own
MOST_STEPS = 2**15 - 1  # either way from zero
_FALL = 127  # parts in which the fall of larger numbers of steps is told
EARLY = 0.25  # of a step
_ROUNDING = 1.00001  # of the arithmetic


@dataclass(frozen=True, slots=True)
class Grid:
    """Whole numbers of steps; one range for all layers."""

    step: float
    additive: ClassVar[bool] = True  # a sum of messages is such a message

    def write(self, sink: Sink, layers: Sequence[Layer], values: Sequence[Floats]) -> None:
        steps = [self._steps(array) for array in values]
        most = max((int(np.abs(one).max(initial=0)) for one in steps), default=0)
        sink.count(most)
        for some in _together(steps) if most else ():
            sink.symbols(some + most, 2 * most + 1, _told(sink, some, most))

    def read(self, source: Source, layers: Sequence[Layer], counts: Sequence[int]) -> list[Floats]:
        most = source.count(MOST_STEPS)
        if not layers:
            return []
        sizes = [sum(counts)] if sum(counts) < FEW else counts
        steps = np.concatenate([_read(source, size, most) for size in sizes])
        found: list[Floats] = []
        for layer, part in zip(layers, np.split(steps, np.cumsum(counts)[:-1]), strict=True):
            values: Floats = part.astype(np.float64 if layer.dtype.itemsize == 8 else np.float32)
            values *= self.step
            found.append(values)
        return found

    def bounds(self, layers: Sequence[Layer], values: Sequence[Floats]) -> list[float]:
        """Three quarters of a step, less than which does not travel; of very large values, what is beyond the last."""
        return [
            max((1 - EARLY) * self.step, float(np.abs(array).max(initial=0.0)) - MOST_STEPS * self.step) * _ROUNDING
            for array in values
        ]

    def _steps(self, array: Floats) -> NDArray[np.int32]:
        """Whole ones, the last from three quarters on: sooner, and values that sway would travel to and fro."""
        with np.errstate(over="ignore"):
            steps = array / array.dtype.type(self.step)
        steps += np.copysign(array.dtype.type(EARLY), steps)
        return steps.clip(-MOST_STEPS, MOST_STEPS).astype(np.int32)


def _told(sink: Sink, steps: NDArray[np.int32], most: int) -> Shares:
    """How often numbers come: how many are none, and how quickly larger ones fall off, is all that is sent of it."""
    taken = int(np.count_nonzero(steps))
    sink.count(taken)
    further = round(_FALL * (1.0 - taken / max(int(np.abs(steps).sum(dtype=np.int64)), 1))) if most > 1 else 0
    if most > 1:
        sink.count(further)
    return _expected(taken, len(steps), most, further)


def _read(source: Source, size: int, most: int) -> NDArray[np.int64]:
    if not most:
        return np.zeros(size, dtype=np.int64)
    taken = source.count(size)
    further = source.count(_FALL) if most > 1 else 0
    return source.symbols(size, 2 * most + 1, _expected(taken, size, most, further)).astype(np.int64) - most


def _expected(taken: int, size: int, most: int, further: int) -> Shares:
    """Nothing as often as it is; each further step is a share of the one before as likely."""
    ratio = max(further, 1) / (_FALL + 1)
    one_way = np.multiply.accumulate(np.concatenate(([1.0], np.full(most - 1, ratio))))
    one_way *= max(taken, 1) / 2 / math.fsum(one_way)  # the same to the last bit wherever it is computed
    return np.concatenate((one_way[::-1], [max(size - taken, 1)], one_way))


def _together(steps: Sequence[NDArray[np.int32]]) -> Sequence[NDArray[np.int32]]:
    if not steps:
        return []
    return [np.concatenate(steps)] if sum(len(one) for one in steps) < FEW else steps


def parsed(argument: str | None) -> Grid:
    """From the text after `grid:`."""
    try:
        step = float(argument or "")
    except ValueError:
        step = math.nan
    if not 1e-30 <= step <= 1e30:
        raise CodecError(f"codec 'grid' takes the size of a step, as in 'grid:0.01'; found {argument!r}")
    return Grid(step)
