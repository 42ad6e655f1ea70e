"""Sampled gradients, or updates, in the store -> how strongly they reach each layer, round after round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from fedvitals.store.protocol import RunReader
from fedvitals.store.table import Floats, Ints
from fedvitals.vocabulary import STATISTICS, Layout

_NORM = STATISTICS.index("norm")


class Flow(NamedTuple):
    """[layers, columns]: the mean logarithm of a layer's root mean square; and how many were not finite."""

    level: Floats
    broken: Ints
    steps: int


def flow_of(reader: RunReader, layout: Layout, column: Mapping[int, int], columns: int, *, steps: bool) -> Flow | None:
    """Of sampled steps or of updates, block by block, so that a long run is never in memory. `column` says where each
    round falls; other layouts have other layers and are left out. None where there is nothing to look at."""
    root = np.sqrt(np.maximum([layer.size for layer in layout.layers], 1))
    shape = (columns, len(layout.layers))
    sums, counts, broken = np.zeros(shape), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    seen = 0
    for number, norms in _norms(reader, layout.id, steps=steps):
        if number not in column:
            continue
        place, finite = column[number], np.isfinite(norms)
        with np.errstate(divide="ignore", invalid="ignore"):
            levels = np.log10(norms / root)
        usable = np.isfinite(levels)
        sums[place] += np.where(usable, levels, 0.0).sum(axis=0)
        counts[place] += usable.sum(axis=0)
        broken[place] += (~finite).sum(axis=0)
        seen += len(norms)
    if not seen:
        return None
    return Flow(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan).T, broken.T, seen)


def _norms(reader: RunReader, layout: int, *, steps: bool) -> Iterator[tuple[int, Floats]]:
    blocks = reader.step_blocks() if steps else reader.update_blocks()
    for block in blocks:
        if block.layout == layout:
            yield block.round, block.stats[:, :, _NORM].astype(np.float64)
