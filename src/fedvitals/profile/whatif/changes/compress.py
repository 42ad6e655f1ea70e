"""What if updates, or models too, were compressed k-fold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fedvitals.profile.whatif.model import Model
from fedvitals.profile.whatif.prediction import Declined, Prediction
from fedvitals.profile.whatif.simulate import Change
from fedvitals.profile.whatif.telling import less_by, told_of
from fedvitals.store.table import Floats
from fedvitals.vocabulary import CLIENT_PHASES

KIND = "compress"
UP, DOWN = CLIENT_PHASES.index("upload"), CLIENT_PHASES.index("download")
CODECS = {2.0: "fp16", 4.0: "quantize:8", 16.0: "quantize:2"}  # of the engine, by what they come to for float32
FOLDS = (4.0, 16.0)
NO_CODEC = "the engine has no codec of just this size"
SLOW_BY_SIZE = "on the real clock a slow link is imitated by the size of the update before it is encoded"


def changes(model: Model) -> Iterator[Prediction | Declined]:
    """Updates alone: the server's models must arrive whole."""
    for fold in FOLDS:
        found = compressed(model, fold)
        if found is not None:
            yield found


def compressed(model: Model, fold: float, *, down: bool = False) -> Prediction | None:
    """None where no transfer was timed, or clients' own times are not known."""
    table = model.timeline.participations
    ways = [(UP, "up", table.wire_bytes_up)]
    ways += [(DOWN, "down", table.wire_bytes_down)] if down else []
    if model.batched or not any(np.nansum(table.phases_s[:, phase]) > 0 for phase, _, _ in ways):
        return None
    less_s = np.zeros(len(table))
    for phase, way, sizes in ways:
        took_s = np.nan_to_num(table.phases_s[:, phase])
        for client, mine in zip(model.timeline.clients, model.rows, strict=True):
            less_s[mine] += took_s[mine] * (1.0 - remaining(model.told.device(client), way, sizes[mine], fold))
    what = "updates and models" if down else "updates"
    assumes = ["encoding and decoding take no time", _about_transfers(model), model.draw.assumes]
    return told_of(
        model,
        KIND,
        f"compress {what} {fold:g}-fold",
        less_by(model, Change(seconds=model.seconds(more_s=-less_s))),
        assumes,
        **_making(model, fold, down),
    )


def _making(model: Model, fold: float, down: bool) -> dict[str, Any]:
    """The codec that does it, or why none can."""
    codec = CODECS.get(fold)
    if codec is None:
        return {"unverified": NO_CODEC}
    job = {"codec.up": codec} | ({"codec.down": codec} if down else {})
    return {"job": job} if model.told.virtual else {"job": job, "unverified": SLOW_BY_SIZE}


def _about_transfers(model: Model) -> str:
    if model.told.virtual:
        return "a transfer's latency stays, the rest of it is in proportion to its bytes"
    return "a transfer's time is in proportion to its bytes"


def remaining(device: dict[str, float] | None, way: str, sizes: Floats, fold: float) -> Floats:
    """The shares of transfers' times that are left. Latency is known where the device is: it stays."""
    speed = device.get(f"{way}_mbps", 0.0) * 1e6 / 8 if device else 0.0
    if device is None or speed <= 0:
        return np.full(len(sizes), 1.0 / fold)
    latency_s, bytes_s = device.get("latency_ms", 0.0) / 1e3, sizes / speed
    with np.errstate(invalid="ignore"):
        share = (latency_s + bytes_s / fold) / (latency_s + bytes_s)
    return np.where(np.isfinite(share), share, 1.0 / fold)
