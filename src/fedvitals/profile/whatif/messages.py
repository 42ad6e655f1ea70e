"""Bytes of messages that were never sent: what a codec makes of an update, and what a client pays to catch up.

As measured on updates of the run where somebody did; else from the shapes of the layers alone, which tell all but what
an entropy coder finds in the values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedvitals.profile.whatif.model import Model
from fedvitals.store.table import Floats, Ints

VALUE_BYTES = 4
FRAME_BYTES = 3  # of a message between ends that agreed on its layers
SCALE_BYTES = 9  # a layer, with which values are rounded
SPARSE = "feedback(topk:0.01 | quantize:8 | entropy)"


class Form(NamedTuple):
    """A codec in short."""

    fold: float  # for large models
    size_bytes: Callable[[float, int], float]  # from the values and the layers of an update


FORMS = {
    "identity": Form(1.0, lambda values, layers: VALUE_BYTES * values + FRAME_BYTES),
    "fp16": Form(2.0, lambda values, layers: 2.0 * values + FRAME_BYTES),
    "quantize:8": Form(4.0, lambda values, layers: values + SCALE_BYTES * layers + FRAME_BYTES),
    SPARSE: Form(200.0, lambda values, layers: 0.02 * values + SCALE_BYTES * layers + FRAME_BYTES),
}


def fold(model: Model, codec: str) -> float | None:
    """How many times smaller than its values a message is; None for a codec that nobody knows or has tried."""
    values, sent = _values(model), message_bytes(model, codec)
    if sent is not None and values:
        return VALUE_BYTES * values / sent
    return FORMS[codec].fold if codec in FORMS else None


def message_bytes(model: Model, codec: str) -> float | None:
    """Of one update; None where neither a trial nor the model's layers tell."""
    if codec in model.tried:
        return max(model.tried[codec].bytes, 1.0)
    values, layers = _values(model), model.profile.communication.layers
    return FORMS[codec].size_bytes(values, len(layers)) if codec in FORMS and values else None


def caught_up_bytes(model: Model, codec: str, rows: Ints) -> Floats | None:
    """Of one client's participations, in order: what it takes in where the server's steps travel, each that it missed,
    or the whole model where that is less. All begin with the same first model."""
    step, whole = message_bytes(model, codec), message_bytes(model, "identity")
    if step is None or whole is None:
        return None
    number = model.timeline.participations.round[rows].astype(np.float64)
    missed = np.maximum(np.diff(number, prepend=0.0), 0.0)
    return np.minimum(missed * step, whole)


def _values(model: Model) -> float:
    return sum(layer.bytes for layer in model.profile.communication.layers) / VALUE_BYTES
