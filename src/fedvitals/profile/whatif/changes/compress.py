"""What if updates, or the server's steps too, were compressed by a codec."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedvitals.profile.whatif.messages import SPARSE, caught_up_bytes, fold, message_bytes
from fedvitals.profile.whatif.model import Model
from fedvitals.profile.whatif.prediction import Declined, Prediction
from fedvitals.profile.whatif.simulate import Change
from fedvitals.profile.whatif.telling import less_by, told_of
from fedvitals.store.table import Floats, Ints
from fedvitals.vocabulary import CLIENT_PHASES

KIND = "compress"
UP, DOWN = CLIENT_PHASES.index("upload"), CLIENT_PHASES.index("download")
OFFERED = (("fp16", False), ("quantize:8", False), (SPARSE, False), ("quantize:8", True))  # and whether down as well


def changes(model: Model) -> Iterator[Prediction | Declined]:
    """Half, a quarter, and hardly anything of an update; and a quarter both ways."""
    for codec, down in OFFERED:
        found = compressed(model, codec, down=down)
        if found is not None:
            yield found


def compressed(model: Model, codec: str, *, down: bool = False) -> Prediction | None:
    """None where no transfer was timed, clients' own times are not known, or nobody knows what the codec comes to."""
    table, folds = model.timeline.participations, fold(model, codec)
    timed = [np.nansum(table.phases_s[:, phase]) > 0 for phase in ([UP, DOWN] if down else [UP])]
    if model.batched or not any(timed) or not timed[-1] or folds is None:
        return None
    less_s = np.zeros(len(table))
    for client, rows in zip(model.timeline.clients, model.rows, strict=True):
        device, mine = model.told.device(client), _in_order(model, rows)
        less_s[mine] += _less_up(model, device, codec, mine, folds)
        if down:
            less_s[mine] += _less_down(model, device, codec, mine, folds)
    return told_of(
        model,
        KIND,
        f"compress updates{' and steps of the model' if down else ''} {folds:.3g}-fold ({codec})",
        [less - _encoding_s(model, codec) for less in less_by(model, Change(seconds=model.seconds(more_s=-less_s)))],
        _assumes(model, codec, down),
        {"codec.up": codec} | ({"codec.down": codec} if down else {}),
    )


def _in_order(model: Model, rows: Ints) -> Ints:
    """One client's participations by attempt."""
    ordered: Ints = rows[np.argsort(model.timeline.participations.attempt[rows], kind="stable")]
    return ordered


def _less_up(model: Model, device: dict[str, float] | None, codec: str, mine: Ints, folds: float) -> Floats:
    table, size = model.timeline.participations, message_bytes(model, codec)
    before = table.wire_bytes_up[mine]
    after = before / folds if size is None else np.full(len(mine), size)
    return _took_s(model, UP, mine) * (1.0 - remaining(device, "up", before, after, folds))


def _less_down(model: Model, device: dict[str, float] | None, codec: str, mine: Ints, folds: float) -> Floats:
    before = model.timeline.participations.wire_bytes_down[mine]
    after = caught_up_bytes(model, codec, mine)
    after = before / folds if after is None else after
    return _took_s(model, DOWN, mine) * (1.0 - remaining(device, "down", before, after, folds))


def _took_s(model: Model, phase: int, rows: Ints) -> Floats:
    took_s: Floats = np.nan_to_num(model.timeline.participations.phases_s[rows, phase])
    return took_s


def _assumes(model: Model, codec: str, down: bool) -> list[str]:
    known = model.told.device(next(iter(model.history), "")) is not None
    found = [
        "encoding and decoding take as long as on this run's updates"
        if _encoding_s(model, codec)
        else "encoding and decoding take no time",
        "what the codec leaves out does nothing to learning",
        "a transfer's latency stays, the rest of it is in proportion to its bytes"
        if known
        else "a transfer's time is in proportion to its bytes",
        "messages are as large as the codec made of this run's updates"
        if codec in model.tried
        else "messages are as large as the codec makes them of such layers",
        model.draw.assumes,
    ]
    return found + (["a client takes in the steps that it missed, or the whole model"] if down else [])


def _encoding_s(model: Model, codec: str) -> float:
    """Of a round's messages, where one process does it all, one after the other."""
    alone = model.told.one_machine and model.workers == 1 and codec in model.tried
    return model.tried[codec].seconds * model.asked if alone else 0.0


def remaining(device: dict[str, float] | None, way: str, before: Floats, after: Floats, folds: float) -> Floats:
    """The shares of transfers' times that are left. Latency is known where the device is: it stays."""
    speed = device.get(f"{way}_mbps", 0.0) * 1e6 / 8 if device else 0.0
    latency_s = device.get("latency_ms", 0.0) / 1e3 if device and speed > 0 else 0.0
    speed = speed if speed > 0 else 1.0
    with np.errstate(invalid="ignore", divide="ignore"):
        share = (latency_s + after / speed) / (latency_s + before / speed)
    return np.where(np.isfinite(share), share, 1.0 / folds)
