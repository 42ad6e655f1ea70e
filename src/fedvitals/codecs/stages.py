"""The stages of a codec, in their order: reduce (which values travel), round (in how many bits), pack (as which bytes),
squeeze (those bytes once more). A codec fills some of them; the others leave everything as it is.

All layers go through a stage together: so a share can be kept of the whole update, and one scale serve all of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from fedvitals.codecs.frame import Layer
from fedvitals.codecs.numbers import Floats
from fedvitals.codecs.streams import PlainSink, PlainSource, Positions, Sink, Source

SLOTS = ("reduction", "rounding", "packing", "squeezing")  # in the order in which they follow each other


class Kept(NamedTuple):
    """What a reduction leaves of a layer."""

    values: Floats
    where: Positions | None = None  # None: the layer's values in order, or whatever the reduction makes of them
    seed: int = 0  # that the places follow from, where they do


class Reduction(Protocol):
    """Fewer values. `places` are a layer's positions, as `Kept.where`."""

    def reduce(self, layers: Sequence[Layer], arrays: Sequence[Floats]) -> list[Kept]:
        """What travels of each layer."""

    def write(self, sink: Sink, layers: Sequence[Layer], kept: Sequence[Kept]) -> None:
        """Everything that `read` needs to know the places."""

    def read(self, source: Source, layers: Sequence[Layer]) -> list[Positions | None]:
        """The places of each layer."""

    def count(self, layer: Layer, places: Positions | None) -> int:
        """How many values of the layer travel."""

    def restore(self, layer: Layer, places: Positions | None, values: Floats) -> Floats:
        """All values of the layer."""

    def bound(self, layer: Layer, array: Floats, kept: Kept, rounded: float) -> float:
        """The most that any value moves, where what travels is `rounded` off by at most so much."""


class Rounding(Protocol):
    """Fewer bits a value."""

    def write(self, sink: Sink, layers: Sequence[Layer], values: Sequence[Floats]) -> None: ...

    def read(self, source: Source, layers: Sequence[Layer], counts: Sequence[int]) -> list[Floats]: ...

    def bounds(self, layers: Sequence[Layer], values: Sequence[Floats]) -> list[float]:
        """The most that any value of each layer moves."""


class Packing(Protocol):
    """Which bytes stand for symbols and positions."""

    def sink(self, agreed: bool) -> Sink:
        """Where both ends have agreed on the layers, a reader knows how much there is to read."""

    def source(self, data: memoryview, sent_bytes: float) -> Source:
        """How much a reader lets be asked of it goes by the bytes that were sent; infinite between agreed ends."""


class Squeezing(Protocol):
    """Bytes to fewer bytes, whatever they say."""

    def squeezed(self, data: bytes) -> bytes: ...

    def restored(self, data: bytes, most: int) -> bytes:
        """CodecError for bytes that `squeezed` cannot have written, or that would be more than `most`."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of a chain as it is written, `id` or `id:argument`, and the slots that it fills."""

    id: str
    argument: str | None
    parts: Mapping[str, Any] = field(compare=False)

    @property
    def config(self) -> dict[str, Any]:
        return {"id": self.id} if self.argument is None else {"id": self.id, "argument": self.argument}

    @property
    def text(self) -> str:
        return self.id if self.argument is None else f"{self.id}:{self.argument}"


class Whole:
    """The reduction that keeps everything, so there are no places to tell."""

    def reduce(self, layers: Sequence[Layer], arrays: Sequence[Floats]) -> list[Kept]:
        return [Kept(array) for array in arrays]

    def write(self, sink: Sink, layers: Sequence[Layer], kept: Sequence[Kept]) -> None:
        """Nothing: `read` knows without."""

    def read(self, source: Source, layers: Sequence[Layer]) -> list[Positions | None]:
        return [None] * len(layers)

    def count(self, layer: Layer, places: Positions | None) -> int:
        return layer.values

    def restore(self, layer: Layer, places: Positions | None, values: Floats) -> Floats:
        return values

    def bound(self, layer: Layer, array: Floats, kept: Kept, rounded: float) -> float:
        return rounded


class Plain:
    """The packing in just the bits that are needed."""

    def sink(self, agreed: bool) -> Sink:
        return PlainSink()

    def source(self, data: memoryview, sent_bytes: float) -> Source:
        return PlainSource(data, sent_bytes)
