"""What if clients trained in bf16."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedvitals.profile.whatif.model import Model
from fedvitals.profile.whatif.prediction import Declined, Prediction
from fedvitals.profile.whatif.simulate import Change
from fedvitals.profile.whatif.telling import less_by, told_of
from fedvitals.vocabulary import CLIENT_PHASES

KIND = "bf16"
TRAIN = CLIENT_PHASES.index("train")
WHAT = "train in bf16"


def changes(model: Model) -> Iterator[Prediction | Declined]:
    """Declined: no run tells how fast another number format would be."""
    if np.nansum(model.timeline.participations.phases_s[:, TRAIN]) > 0:
        yield Declined(
            WHAT,
            KIND,
            "how fast bf16 is depends on the processor, and nothing here has measured it; small models were 1.5 times "
            "slower in bf16 on a CPU without units for it",
        )


def in_bf16(model: Model, factor: float) -> Prediction | None:
    """With a factor that was measured: how many times as long training takes. None where clients' own times are not
    known."""
    if model.batched or factor <= 0:
        return None
    train_s = np.nan_to_num(model.timeline.participations.phases_s[:, TRAIN])
    seconds = model.seconds(more_s=(factor - 1.0) * train_s)
    assumes = [f"training takes {factor:g} times as long, as was measured", model.draw.assumes]
    less = less_by(model, Change(seconds=seconds))
    job = {"train.precision": "bf16"}
    return told_of(model, KIND, WHAT, less, assumes, job, "the engine trains in fp32 only")
