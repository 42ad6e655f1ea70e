"""`grid:STEP`: each value as a whole number of steps, towards zero: what is smaller than one does not travel.

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
from fedvitals.codecs.streams import Sink, Source
from fedvitals.errors import CodecError

FEW = 2**15  # values that share a table of how often symbols come; of more, each layer pays for its own
MOST_STEPS = 2**15 - 1  # either way from zero
_ROUNDING = 1e-5  # of the arithmetic: less than a step of the largest number of them


@dataclass(frozen=True, slots=True)
class Grid:
    """Whole numbers of steps; one range for all layers."""

    step: float
    additive: ClassVar[bool] = True  # a sum of messages is such a message

    def write(self, sink: Sink, layers: Sequence[Layer], values: Sequence[Floats]) -> None:
        steps = [self._steps(array) for array in values]
        most = max((int(np.abs(one).max(initial=0)) for one in steps), default=0)
        sink.count(most)
        for some in _together(steps):
            sink.symbols(some + most, 2 * most + 1)

    def read(self, source: Source, layers: Sequence[Layer], counts: Sequence[int]) -> list[Floats]:
        most = source.count(MOST_STEPS)
        if not layers:
            return []
        sizes = [sum(counts)] if sum(counts) < FEW else counts
        steps = np.concatenate([source.symbols(size, 2 * most + 1).astype(np.int64) - most for size in [0, *sizes]])
        found: list[Floats] = []
        for layer, part in zip(layers, np.split(steps, np.cumsum(counts)[:-1]), strict=True):
            values: Floats = part.astype(np.float64 if layer.dtype.itemsize == 8 else np.float32)
            values *= self.step
            found.append(values)
        return found

    def bounds(self, layers: Sequence[Layer], values: Sequence[Floats]) -> list[float]:
        """A step, less than which does not travel; of very large values, what is beyond the last step."""
        return [
            max(self.step, float(np.abs(array).max(initial=0.0)) - MOST_STEPS * self.step) * (1 + _ROUNDING)
            for array in values
        ]

    def _steps(self, array: Floats) -> NDArray[np.int32]:
        """Whole ones. A value that lies on the grid but for its last bits counts as there."""
        with np.errstate(over="ignore"):
            whole = np.trunc(array / array.dtype.type(self.step) * (1 + _ROUNDING))
        return whole.clip(-MOST_STEPS, MOST_STEPS).astype(np.int32)


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
