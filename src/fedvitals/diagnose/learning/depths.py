"""The matrices of a model in the order of their depth, and how large gradients and weights are in each."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.store.table import Bools, Floats
from fedvitals.vocabulary import Layer, Layout

MOST_TAKEN = 10_000  # participations that are enough for a median
EMBEDDINGS = ("embed", "wte", "wpe", "lookup")  # their rows are read, not multiplied: no fan-in to speak of


def matrices(layout: Layout) -> list[int]:
    """The trainable matrices (and convolutions), first to last; tables of vectors are left out."""
    return [number for number, layer in enumerate(layout.layers) if _is_matrix(layer)]


def _is_matrix(layer: Layer) -> bool:
    named = any(word in layer.name.lower() for word in EMBEDDINGS)
    return len(layer.shape) >= 2 and layer.trainable is not False and "float" in layer.dtype and not named


def fan_in(layer: Layer) -> int:
    """How many inputs one output of this layer sums over."""
    return max(math.prod(layer.shape[1:]), 1)


@dataclass(frozen=True, slots=True, eq=False)
class Depths:
    """Root mean squares of each matrix's gradient, a row a participation (its first sampled step); or of its update."""

    names: tuple[str, ...]
    sizes: Floats  # [rows, matrices]
    of: str

    @property
    def known(self) -> Bools:
        return np.asarray(np.isfinite(self.sizes).all(axis=1))

    def some(self) -> Floats:
        """The sizes of known participations, evenly taken where there are very many."""
        rows = np.flatnonzero(self.known)
        return self.sizes[rows[:: max(len(rows) // MOST_TAKEN, 1)]]


def depths(chart: Chart) -> Depths | None:
    """By gradients where they were sampled, else by updates; None where neither is known or there is no matrix."""
    updates, gradients = chart.updates, chart.gradients
    if updates is None:
        return None
    chosen = matrices(updates.layout)
    if not chosen:
        return None
    sizes = np.full((len(chart.participations), len(chosen)), np.nan)
    of = "updates"
    if gradients is not None and (gradients.row >= 0).any():
        taken = (gradients.row >= 0) & (gradients.step == 0)
        sizes[gradients.row[taken]] = gradients.norms[taken][:, chosen]
        of = "gradients"
    else:
        sizes[updates.present] = updates.norms[updates.present][:, chosen]
    roots = np.sqrt([updates.layout.layers[number].size for number in chosen])
    return Depths(tuple(updates.layout.layers[number].name for number in chosen), sizes / roots, of)
