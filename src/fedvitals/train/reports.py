"""The engine: what a selection hears of clients that were trained, and of those that were not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedvitals.train.selections import Report
from fedvitals.train.trained import Failed, Trained


def reports(trained: Trained, epochs: int, durations_s: Sequence[float]) -> list[Report]:
    """One for each client. Their loss is that of the first epoch: nearly the received model's on their rows."""
    found = []
    for row, (steps, rows) in enumerate(zip(trained.steps.tolist(), trained.samples.tolist(), strict=True)):
        losses = trained.losses[row, : -(-steps // max(epochs, 1))].astype(np.float64)
        loss = float(np.sqrt(np.mean(np.square(losses)))) if len(losses) else None
        found.append(Report(rows, durations_s[row], loss))
    return found


def durations_s(trained: Trained) -> list[float]:
    """As measured."""
    return [(end - start) / 1e9 for start, end in zip(trained.start_ns, trained.end_ns, strict=True)]


def nothing_came(failed: Failed, duration_s: float) -> Report:
    """Of a client that failed or went away."""
    return Report(0, duration_s or (failed.end_ns - failed.start_ns) / 1e9)
