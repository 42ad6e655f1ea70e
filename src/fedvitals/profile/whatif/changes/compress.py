"""What if updates, or models too, were compressed k-fold."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedvitals.profile.whatif.model import Model, Task
from fedvitals.profile.whatif.prediction import Declined, Prediction
from fedvitals.profile.whatif.simulate import Change
from fedvitals.profile.whatif.telling import less_by, told_of
from fedvitals.vocabulary import CLIENT_PHASES

KIND = "compress"
UP, DOWN = CLIENT_PHASES.index("upload"), CLIENT_PHASES.index("download")
FOLDS = (4.0, 16.0)  # 8-bit numbers; a few of the values
NO_CODEC = "the engine has no codec but identity yet"


def changes(model: Model) -> Iterator[Prediction | Declined]:
    """Updates alone: the server's models must arrive whole."""
    for fold in FOLDS:
        found = compressed(model, fold)
        if found is not None:
            yield found


def compressed(model: Model, fold: float, *, down: bool = False) -> Prediction | None:
    """None where no transfer was timed, or clients' own times are not known."""
    ways = [(UP, "up", model.timeline.participations.wire_bytes_up)]
    ways += [(DOWN, "down", model.timeline.participations.wire_bytes_down)] if down else []
    table = model.timeline.participations
    if model.batched or not any(np.nansum(table.phases_s[:, phase]) > 0 for phase, _, _ in ways):
        return None

    def seconds(task: Task) -> float:
        less = 0.0
        for phase, way, sizes in ways:
            took = float(np.nan_to_num(table.phases_s[task.row, phase]))
            less += took * (1.0 - remaining(model.told.device(task.client), way, float(sizes[task.row]), fold))
        return max(task.seconds - less, 0.0)

    what = "updates and models" if down else "updates"
    assumes = ["encoding and decoding take no time", _about_transfers(model), model.draw.assumes]
    return told_of(
        model,
        KIND,
        f"compress {what} {fold:g}-fold",
        less_by(model, Change(seconds=seconds)),
        assumes,
        unverified=NO_CODEC,
    )


def _about_transfers(model: Model) -> str:
    if model.told.virtual:
        return "a transfer's latency stays, the rest of it is in proportion to its bytes"
    return "a transfer's time is in proportion to its bytes"


def remaining(device: dict[str, float] | None, way: str, size_bytes: float, fold: float) -> float:
    """The share of a transfer's time that is left. Latency is known where the device is: it stays."""
    if device is None or not np.isfinite(size_bytes):
        return 1.0 / fold
    whole_s = 8 * size_bytes / (device.get(f"{way}_mbps", 0.0) * 1e6 or np.inf)
    latency_s = device.get("latency_ms", 0.0) / 1e3
    return (latency_s + whole_s / fold) / (latency_s + whole_s) if latency_s + whole_s > 0 else 1.0
