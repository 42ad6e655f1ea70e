"""`topk:SHARE`: the largest values, each with its position; `threshold:T`: those of at least that size.

The largest are chosen among all layers, `topk:0.01`; or the same share of each, `topk:0.01:layer`; or of each by its
part of the update's energy, `topk:0.01:energy`. At least one value of an update travels, however small the share.
A threshold is a size for all layers, `threshold:1e-3`, or in root mean squares of each, `threshold:3:layer`.
(A. Aji and K. Heafield, Sparse Communication for Distributed Gradient Descent, 2017; S. Stich et al., Sparsified SGD
with Memory, 2018.) What is left out is lost unless `feedback(...)` keeps it for the next time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedvitals.codecs.frame import Layer
from fedvitals.codecs.numbers import Floats
from fedvitals.codecs.reductions.scattered import Scattered, kept_of, parsed_across, split_by
from fedvitals.codecs.roundings.scales import norm_of
from fedvitals.codecs.stages import Kept
from fedvitals.codecs.streams import Positions, Sink, Source
from fedvitals.errors import CodecError

ACROSS = ("update", "layer", "energy")


class _Chosen(Scattered):
    """Places that only the sender can know: they are written along."""

    __slots__ = ()

    def places(self, arrays: Sequence[Floats]) -> list[Positions]:
        raise NotImplementedError

    def reduce(self, layers: Sequence[Layer], arrays: Sequence[Floats]) -> list[Kept]:
        return [Kept(array[where], where) for array, where in zip(arrays, self.places(arrays), strict=True)]

    def write(self, sink: Sink, layers: Sequence[Layer], kept: Sequence[Kept]) -> None:
        for layer, one in zip(layers, kept, strict=True):
            assert one.where is not None
            sink.count(len(one.where))
            sink.positions(one.where, layer.values)

    def read(self, source: Source, layers: Sequence[Layer]) -> list[Positions | None]:
        return [source.positions(source.count(layer.values), layer.values) for layer in layers]


@dataclass(frozen=True, slots=True)
class TopK(_Chosen):
    """The largest."""

    share: float
    across: str = "update"

    def places(self, arrays: Sequence[Floats]) -> list[Positions]:
        sizes = [np.abs(array) for array in arrays]
        if self.across == "update":
            return _largest_of_all(sizes, self.share)
        values = [len(one) for one in sizes]
        if self.across == "layer":
            counts = [kept_of(one, self.share) for one in values]
        else:
            counts = by_energy(_energies(sizes), values, kept_of(sum(values), self.share))
        return [_largest(one, count) for one, count in zip(sizes, counts, strict=True)]


@dataclass(frozen=True, slots=True)
class Threshold(_Chosen):
    """Whatever is at least so large, which may be nothing."""

    least: float
    across: str = "update"

    def places(self, arrays: Sequence[Floats]) -> list[Positions]:
        return [self._large(np.abs(array)) for array in arrays]

    def _large(self, sizes: Floats) -> Positions:
        with np.errstate(over="ignore"):  # beyond all that single precision holds: then nothing is large
            if self.across == "update":
                return np.flatnonzero(sizes >= self.least)
            usual = norm_of(sizes) / math.sqrt(max(len(sizes), 1))
            return np.flatnonzero((sizes >= self.least * usual) & (sizes > 0))  # nor anything in a layer of zeros


def _energies(sizes: Sequence[Floats]) -> list[float]:
    """Squared norms in units of the largest, which keeps squares of any size in range."""
    norms = [norm_of(one) for one in sizes]
    largest = max(norms, default=0.0)
    return [(norm / largest) ** 2 if largest else 0.0 for norm in norms]


def by_energy(energies: Sequence[float], values: Sequence[int], budget: int) -> list[int]:
    """How many values of each layer travel: in proportion to its energy, as far as it has any, and the rest of the
    budget to the others."""
    counts = [0] * len(values)
    open_ = [place for place, energy in enumerate(energies) if energy > 0.0] or list(range(len(values)))
    weights = {place: energies[place] or 1.0 for place in open_}
    left = budget
    while open_ and left > 0:
        total = sum(weights[place] for place in open_)
        full = [place for place in open_ if left * (weights[place] / total) >= values[place]]
        if not full:
            break
        for place in full:
            counts[place] = values[place]
            left -= values[place]
            open_.remove(place)
    total = sum(weights[place] for place in open_)
    for place in open_:
        counts[place] = min(values[place], math.ceil(left * (weights[place] / total))) if left > 0 else 0
    return counts


def top_k(argument: str | None) -> TopK:
    """From the text after `topk:`."""
    return TopK(*parsed_across("topk", argument, ACROSS))


def threshold(argument: str | None) -> Threshold:
    """From the text after `threshold:`."""
    size, colon, across = (argument or "").partition(":")
    try:
        least = float(size)
    except ValueError:
        least = math.nan
    if not (math.isfinite(least) and least >= 0.0) or (colon and across not in ("update", "layer")):
        raise CodecError(
            f"codec 'threshold' takes the least size that travels, as in 'threshold:1e-3', or in a layer's root mean "
            f"squares, as in 'threshold:3:layer'; found {argument!r}"
        )
    return Threshold(least, across or "update")


def _largest(sizes: Floats, count: int) -> Positions:
    """The places of the largest, ascending; of equals, the first."""
    if count >= len(sizes):
        return np.arange(len(sizes))
    if count == 0:
        return np.zeros(0, dtype=np.int64)
    least = np.partition(sizes, len(sizes) - count)[len(sizes) - count]
    above = np.flatnonzero(sizes > least)
    equal = np.flatnonzero(sizes == least)[: count - len(above)]
    return np.sort(np.concatenate((above, equal)))


def _largest_of_all(sizes: Sequence[Floats], share: float) -> list[Positions]:
    if not sizes:
        return []
    whole = np.concatenate(sizes)
    found = _largest(whole, kept_of(len(whole), share)) if len(whole) else np.zeros(0, dtype=np.int64)
    return split_by(found, [len(one) for one in sizes])
