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
from fedvitals.codecs.roundings.places import Indices, Matrix
from fedvitals.codecs.roundings.sizes import TOLD, told
from fedvitals.codecs.streams import Flags, Shares, Sink, Source
from fedvitals.errors import CodecError

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
        steps = np.concatenate([np.zeros(0, dtype=np.int32), *(self._steps(array) for array in values)])
        sizes = np.abs(steps)
        most = int(sizes.max(initial=0))
        sink.count(most)
        if not most:
            return

        def ask(indices: Indices, level: int, chances: Shares) -> Flags:
            answer: Flags = sizes[indices] > level
            sink.flags(answer, chances)
            return answer

        told(ask, _matrices(layers, [len(array) for array in values]), most)
        there = steps[steps != 0]
        sink.flags(there > 0, _either(len(there)))
        large = sizes[sizes >= TOLD]
        if len(large) and most > TOLD:
            expected = _told(sink, large - TOLD, most - TOLD)
            sink.symbols(large - TOLD, len(expected), expected)

    def read(self, source: Source, layers: Sequence[Layer], counts: Sequence[int]) -> list[Floats]:
        most = source.count(MOST_STEPS)
        if not most:
            return [np.zeros(count, dtype=_type(layer)) for layer, count in zip(layers, counts, strict=True)]

        def ask(indices: Indices, level: int, chances: Shares) -> Flags:
            return source.flags(chances)

        source.expect(sum(counts))  # one of each value at least
        steps = told(ask, _matrices(layers, counts), most)
        there, large = np.flatnonzero(steps), np.flatnonzero(steps >= TOLD)
        down = there[~source.flags(_either(len(there)))]
        if len(large) and most > TOLD:
            expected = _expected(most - TOLD, source.count(_FALL))
            steps[large] += source.symbols(len(large), len(expected), expected).astype(np.int32)
        steps[down] *= -1
        found: list[Floats] = []
        for layer, part in zip(layers, np.split(steps, np.cumsum(counts)[:-1]) if counts else [], strict=True):
            values: Floats = part.astype(_type(layer))
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


def _told(sink: Sink, beyond: NDArray[np.int32], most: int) -> Shares:
    """How often numbers from 0 to `most` come: how quickly larger ones fall off is all that is sent of it."""
    whole = int(beyond.sum(dtype=np.int64))
    further = round(_FALL * whole / (whole + len(beyond)))
    sink.count(further)
    return _expected(most, further)


def _expected(most: int, further: int) -> Shares:
    """Each further step is a share of the one before as likely."""
    ratio = max(further, 1) / (_FALL + 1)
    found: Shares = np.multiply.accumulate(np.concatenate(([1.0], np.full(most, ratio))))
    return found


def _either(count: int) -> Shares:
    """Up is as likely as down."""
    return np.full(count, 0.5)


def _matrices(layers: Sequence[Layer], counts: Sequence[int]) -> list[Matrix]:
    """Rows and columns of layers whose values all travel; without them, all in one column."""
    return [
        (layer.shape[0], math.prod(layer.shape[1:])) if layer.shape and count == layer.values else (count, 1)
        for layer, count in zip(layers, counts, strict=True)
    ]


def _type(layer: Layer) -> type[np.floating]:
    return np.float64 if layer.dtype.itemsize == 8 else np.float32


def parsed(argument: str | None) -> Grid:
    """From the text after `grid:`."""
    try:
        step = float(argument or "")
    except ValueError:
        step = math.nan
    if not 1e-30 <= step <= 1e30:
        raise CodecError(f"codec 'grid' takes the size of a step, as in 'grid:0.01'; found {argument!r}")
    return Grid(step)
