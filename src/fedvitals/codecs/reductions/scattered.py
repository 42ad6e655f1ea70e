"""What reductions to some of the values have in common: the rest is zero when they arrive."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedvitals.codecs.frame import Layer
from fedvitals.codecs.numbers import Floats
from fedvitals.codecs.stages import Kept
from fedvitals.codecs.streams import Positions
from fedvitals.errors import CodecError


class Scattered:
    """Values at places."""

    __slots__ = ()

    def count(self, layer: Layer, places: Positions | None) -> int:
        assert places is not None
        return len(places)

    def restore(self, layer: Layer, places: Positions | None, values: Floats) -> Floats:
        whole = np.zeros(layer.values, dtype=values.dtype)
        whole[places] = values
        return whole

    def bound(self, layer: Layer, array: Floats, kept: Kept, rounded: float) -> float:
        """The largest value that is left out, or what those that travel are rounded off."""
        left = np.abs(array)
        left[kept.where] = 0.0
        return max(float(left.max(initial=0.0)), rounded if kept.values.size else 0.0)


def kept_of(values: int, share: float) -> int:
    """How many a share of so many values is: at least one, where there is any."""
    return min(values, max(1, math.ceil(round(share * values, 6))))


def split_by(places: Positions, values: Sequence[int]) -> list[Positions]:
    """Places in an update as places in each of its layers, which have so many values."""
    if not values:
        return []
    ends = np.cumsum(values)
    parts = np.split(places, np.searchsorted(places, ends[:-1]))
    return [part - (end - count) for part, end, count in zip(parts, ends.tolist(), values, strict=True)]


def parsed_across(id: str, argument: str | None, across: Sequence[str]) -> tuple[float, str]:
    """From `share` or `share:across`; without it the first of these."""
    share, colon, way = (argument or "").partition(":")
    if colon and way not in across:
        raise CodecError(f"{id}:{argument}: a share is taken across one of {', '.join(across)}; found {way!r}")
    return parsed_share(id, share), way or across[0]


def parsed_share(id: str, text: str) -> float:
    """A share as it is written: above 0, at most 1."""
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0.0 < share <= 1.0:
        raise CodecError(f"codec {id!r} takes a share above 0 and at most 1, as in '{id}:0.01'; found {text!r}")
    return share
