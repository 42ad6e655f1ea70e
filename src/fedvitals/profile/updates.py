"""A run in the store -> how large its first updates were."""

from __future__ import annotations

import numpy as np

from fedvitals.store.protocol import RunReader


def first_update_size(reader: RunReader) -> float | None:
    """The root mean square of a value, in the median over the first round's clients; None where none was kept."""
    sizes = {one.id: sum(layer.size for layer in one.layers) for one in reader.layouts()}
    found: list[float] = []
    for block in reader.update_blocks(round=0):
        norms = np.sqrt((block.stats[:, :, 0].astype(np.float64) ** 2).sum(axis=1))
        found += (norms / np.sqrt(max(sizes[block.layout], 1))).tolist()
    sound = [one for one in found if np.isfinite(one) and one > 0.0]
    return float(np.median(sound)) if sound else None
