"""The engine: what a selection hears of clients that were trained."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedvitals.train.selections import Report
from fedvitals.train.trained import Trained


def reports(trained: Trained, epochs: int, durations_s: Sequence[float], *, late: bool = False) -> list[Report]:
    """One for each client. Their loss is that of the first epoch: nearly the received model's on their rows."""
    first = -(-trained.steps // max(epochs, 1))
    seen = np.arange(trained.losses.shape[1]) < first[:, None]
    squares = np.square(trained.losses, dtype=np.float64)
    means = np.where(seen, squares, 0.0).sum(axis=1) / np.maximum(first, 1)
    told = zip(trained.samples.tolist(), durations_s, np.sqrt(means).tolist(), first.tolist(), strict=True)
    return [Report(rows, took_s, loss if steps else None, late=late) for rows, took_s, loss, steps in told]


def durations_s(trained: Trained) -> list[float]:
    """As measured."""
    return [(end - start) / 1e9 for start, end in zip(trained.start_ns, trained.end_ns, strict=True)]
