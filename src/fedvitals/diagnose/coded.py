"""What a codec may have done to updates before they arrived: rules look at what came, not at what was sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedvitals.diagnose.chart import NORM, ZEROS, Chart, Updates
from fedvitals.diagnose.rule import CannotSee
from fedvitals.store.table import Bools, Floats
from fedvitals.vocabulary import Action, JSONObject

LOSSLESS = frozenset({"identity", "entropy", "zstd"})
# Of a typical layer that moves, the share of values that do: less, and the others were left out on the way. Rows that
# hold zeros leave values still by themselves, so that without a codec that is known it takes more to say so.
WHOLE, HALF = 0.9, 0.5


def lossy_codec(config: JSONObject) -> str | None:
    """The job's `codec.up` where it changes values; None for others, and for loops of one's own."""
    section = config.get("codec")
    spec = section.get("up") if isinstance(section, Mapping) else None
    if not isinstance(spec, str):
        return None
    parts = {part.strip().partition(":")[0] for part in spec.split("|")}
    return None if parts <= LOSSLESS else spec


def thinned(chart: Chart) -> bool:
    """Whether most updates arrived without some of their values: then zeros do not tell that nothing moved."""
    updates = chart.updates
    if updates is None or not updates.present.any():
        return False
    stats = updates.stats[updates.present]
    learns = np.array([layer.trainable is not False for layer in updates.layout.layers])  # others travel whole
    shares = np.where(stats[:, :, NORM] > 0, 1.0 - stats[:, :, ZEROS], np.nan)[:, _floats(updates) & learns]
    some = shares[np.isfinite(shares).any(axis=1)]
    if not len(some):
        return False
    typical = float(np.median(np.nanmedian(some, axis=1)))
    return typical < (HALF if lossy_codec(chart.run.config) is None else WHOLE)


def trained_still(chart: Chart) -> Bools:
    """[rows, layers] of the updates: no sampled gradient of the participation moved the layer, and one was sampled.
    Gradients are looked at where clients train: before any codec. CannotSee where there are none."""
    gradients, updates = chart.gradients, chart.updates
    if gradients is None or updates is None:
        raise CannotSee("updates arrived without most of their values, and no gradients were sampled")
    known = gradients.row >= 0
    rows, moved = gradients.row[known], gradients.norms[known] > 0
    count = len(chart.participations)
    sampled = np.bincount(rows, minlength=count) > 0
    still = np.zeros((count, len(updates.layout.layers)), dtype=bool)
    places = {layer.name: place for place, layer in enumerate(gradients.layout.layers)}
    for column, layer in enumerate(updates.layout.layers):
        if layer.name in places:
            still[:, column] = sampled & (np.bincount(rows, moved[:, places[layer.name]], count) == 0)
    return still


def arrived_values(chart: Chart) -> Floats:
    """How many values of each update are not zero; NaN where that is not known."""
    updates = chart.updates
    if updates is None:
        return np.full(len(chart.participations), np.nan)
    kept = _floats(updates)
    sizes = np.array([layer.size for layer in updates.layout.layers], dtype=np.float64)[kept]
    there = (1.0 - updates.stats[:, kept, ZEROS].astype(np.float64)) @ sizes
    return np.where(updates.present, there, np.nan)


def advice(chart: Chart) -> Sequence[Action]:
    """What else to try where a run learns little and its codec loses for good what it leaves out."""
    spec = lossy_codec(chart.run.config)
    if spec is None or spec.startswith("feedback"):
        return ()
    return (Action(f'codec.up = "feedback({spec})": what "{spec}" leaves out of updates is lost', safe=False),)


def _floats(updates: Updates) -> Bools:
    return np.array(["float" in layer.dtype and layer.size > 0 for layer in updates.layout.layers], dtype=bool)
