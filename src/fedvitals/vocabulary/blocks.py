"""The ground: many at once, in columns. The layers of a model, statistics and sketches of updates, participations.

numpy is named for the type checker alone: a block only holds what it was given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from fedvitals.vocabulary.records import Participation

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

STATISTICS = ("norm", "mean", "std", "min", "max", "zero_ratio")


class Layer(NamedTuple):
    """One tensor of the model, as it lies in a flattened update."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    size: int
    trainable: bool | None = None  # None: only a state dict was seen, so nobody knows


class Layout(NamedTuple):
    """The layers of an update in order. A run has one, unless clients submit other shapes."""

    id: int
    layers: tuple[Layer, ...]
    sketch_buckets: tuple[int, ...] = ()  # buckets of each layer, in the order of `layers`
    unit_layer: int | None = None  # the layer whose rows are sketched one by one: the last matrix
    units: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class UpdateBlock:
    """Statistics and sketches of up to 128 updates that were summarised together.

    `stats` is [rows, layers, STATISTICS]. Sketches are of the update divided by its norm, so float16 holds any scale:
    the sketch of the update itself is `sketches * norm`. `units` describes each row of the last matrix: its norm (as a
    share of the matrix's), its sum (as a share of norm * sqrt(columns)) and 8 buckets (as shares of the row's norm).
    """

    id: int
    round: int
    layout: int
    stats: NDArray[np.float32]
    nonfinite: NDArray[np.uint32] | None = None  # [rows, layers]; None: every value was finite
    sketches: NDArray[np.float16] | None = None  # [rows, buckets]
    unit_norms: NDArray[np.float16] | None = None  # [rows, units]
    unit_sums: NDArray[np.float16] | None = None  # [rows, units]
    unit_sketches: NDArray[np.int8] | None = None  # [rows, units, 8], in 1/63.5 of the row's norm
    losses: NDArray[np.float32] | None = None  # [rows, kept steps], NaN-padded
    loss_steps: NDArray[np.int32] | None = None  # [rows, kept steps]: which steps those are, -1 for padding


@dataclass(frozen=True, slots=True, eq=False)
class ModelBlock:
    """Statistics of one version of the global model."""

    version: int
    round: int
    layout: int
    stats: NDArray[np.float32]  # [layers, STATISTICS]
    nonfinite: NDArray[np.uint32] | None
    drift_first: float  # norm of the difference from the first version
    drift_last: float  # and from the one before
    fingerprint: str


@dataclass(frozen=True, slots=True, eq=False)
class StepBlock:
    """Gradient statistics of sampled steps, of one client or of a cohort trained as one.

    `stats` is [rows, layers, fields]: 1 field is the norm alone, 6 are STATISTICS.
    """

    round: int
    layout: int
    clients: tuple[str, ...]  # one a row
    attempts: tuple[int, ...]
    steps: tuple[int, ...]
    stats: NDArray[np.float32]


class TensorStats(NamedTuple):
    """One layer of one update or model: the row of a block, with its name."""

    layer: str
    size: int
    norm: float
    mean: float
    std: float
    min: float
    max: float
    zero_ratio: float
    nonfinite: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Sketch:
    """A count sketch of one update: dot products of sketches estimate dot products of updates."""

    values: NDArray[np.float16]  # of the update divided by its norm
    norm: float


@dataclass(frozen=True, slots=True, eq=False)
class Participations:
    """Many participations at once, column by column: what becomes of a cohort that was trained as one.

    A column is a list, a tuple, a range or a numpy array with a value for each, or one value that holds for all. Those
    that are not there are empty. A store keeps them as if each had come by itself.
    """

    count: int
    columns: Mapping[str, Any]  # by the fields of Participation; `client` and `attempt` are lists

    def rows(self) -> list[Participation]:
        """One by one."""
        columns: list[Iterable[Any]] = [repeat(None)] * len(_PLACES)
        for name, column in self.columns.items():
            columns[_PLACES[name]] = spread(column, self.count)
        return list(map(Participation._make, zip(*columns, strict=False)))  # strict: some go on for ever


_PLACES = {name: place for place, name in enumerate(Participation._fields)}


def spread(column: Any, count: int) -> Iterable[Any]:
    """The values of a column of `Participations`, one for each."""
    if hasattr(column, "tolist"):
        column = column.tolist()
    return column if isinstance(column, list | tuple | range) else repeat(column, count)
