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
            "no number format is faster on the virtual clock"
            if model.told.virtual
            else "how fast bf16 is depends on the processor, and nothing here has measured it; a job with "
            'train.precision = "bf16" measures it before it trains, and is refused where it does not pay',
        )


def in_bf16(model: Model, more_s: float) -> Prediction | None:
    """With what a step was measured to take more, or less than 0 where it takes less. None where clients' own times are
    not known, or are reckoned whatever the format."""
    if model.batched or model.told.virtual:
        return None
    table = model.timeline.participations
    trained_s = np.nan_to_num(table.phases_s[:, TRAIN])
    longer_s = np.where(trained_s > 0, np.nan_to_num(table.steps) * more_s, 0.0)
    seconds = model.seconds(more_s=np.maximum(longer_s, -trained_s))
    assumes = [f"a step takes {1e3 * more_s:+.3g} ms, as was measured", model.draw.assumes]
    less = less_by(model, Change(seconds=seconds))
    # It is known whether it pays: the engine need not find out again.
    return told_of(model, KIND, WHAT, less, assumes, {"train.precision": "bf16", "execute.measure": False})
