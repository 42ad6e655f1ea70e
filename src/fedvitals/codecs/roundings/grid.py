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
from fedvitals.codecs.roundings import presence
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
        if not most:
            return
        for layer, one in zip(layers, steps, strict=True):
            presence.write(sink, one != 0, _rows(layer, len(one)))
        for some in _together([one[one != 0] for one in steps], sum(len(one) for one in steps)):
            if len(some):
                sink.symbols(some + most - (some > 0), 2 * most, _told(sink, some, most))

    def read(self, source: Source, layers: Sequence[Layer], counts: Sequence[int]) -> list[Floats]:
        most = source.count(MOST_STEPS)
        there = [
            presence.read(source, count, _rows(layer, count)) if most else np.zeros(count, dtype=bool)
            for layer, count in zip(layers, counts, strict=True)
        ]
        taken = [int(np.count_nonzero(one)) for one in there]
        sizes = [sum(taken)] if sum(counts) < FEW else taken
        steps = np.concatenate([np.zeros(0, dtype=np.int64), *(_read(source, size, most) for size in sizes)])
        found: list[Floats] = []
        for layer, where, part in zip(layers, there, np.split(steps, np.cumsum(taken))[: len(layers)], strict=True):
            values: Floats = np.zeros(len(where), dtype=np.float64 if layer.dtype.itemsize == 8 else np.float32)
            values[where] = part
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
    """How often numbers come, none of them 0: how quickly larger ones fall off is all that is sent of it."""
    further = round(_FALL * (1.0 - len(steps) / int(np.abs(steps).sum(dtype=np.int64)))) if most > 1 else 0
    if most > 1:
        sink.count(further)
    return _expected(most, further)


def _read(source: Source, size: int, most: int) -> NDArray[np.int64]:
    if not size:
        return np.zeros(0, dtype=np.int64)
    further = source.count(_FALL) if most > 1 else 0
    found = source.symbols(size, 2 * most, _expected(most, further)).astype(np.int64) - most
    return found + (found >= 0)


def _expected(most: int, further: int) -> Shares:
    """Either way from zero; each further step is a share of the one before as likely."""
    ratio = max(further, 1) / (_FALL + 1)
    one_way = np.multiply.accumulate(np.concatenate(([1.0], np.full(most - 1, ratio))))
    return np.concatenate((one_way[::-1], one_way))


def _together(steps: Sequence[NDArray[np.int32]], values: int) -> Sequence[NDArray[np.int32]]:
    return [np.concatenate(steps)] if values < FEW else steps


def _rows(layer: Layer, count: int) -> tuple[int, ...]:
    """The shape of a layer whose values all travel; without one they are in no rows."""
    return layer.shape if count == layer.values else ()


def parsed(argument: str | None) -> Grid:
    """From the text after `grid:`."""
    try:
        step = float(argument or "")
    except ValueError:
        step = math.nan
    if not 1e-30 <= step <= 1e30:
        raise CodecError(f"codec 'grid' takes the size of a step, as in 'grid:0.01'; found {argument!r}")
    return Grid(step)
