"""All kinds of changes, and what they would do to a run: `what_if(profile)`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from fedvitals.profile.profile import Profile
from fedvitals.profile.whatif.changes import (
    asynchronous,
    batch,
    bf16,
    compress,
    deadline,
    drop,
    evaluate,
    first,
    processes,
)
from fedvitals.profile.whatif.model import Model, Tried
from fedvitals.profile.whatif.prediction import Declined, Prediction

Kind = Callable[[Model], Iterator[Prediction | Declined]]

KINDS: dict[str, Kind] = {
    one.KIND: one.changes for one in (compress, deadline, first, drop, asynchronous, batch, processes, bf16, evaluate)
}
NO_ROUNDS = "nobody waits for anybody without rounds, and a change would move every step after it"
LEAST = 0.005  # share of the wall time that is worth a line


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What is known about changes to a run: the best first, and what cannot be told."""

    predictions: tuple[Prediction, ...] = ()
    declined: tuple[Declined, ...] = ()


def what_if(profile: Profile, least: float = LEAST, tried: Mapping[str, Tried] | None = None) -> WhatIf:
    """Every kind of change, those apart that would save less than this share of the time. `tried` says what codecs make
    of an update of the run, where somebody has tried."""
    if not profile.rounds or not len(profile.timeline.participations) or profile.wall_s <= 0:
        return WhatIf()
    model = Model.of(profile, tried)
    if model.told.text("server.mode") == "async":
        return WhatIf((), (Declined("other settings", asynchronous.KIND, NO_ROUNDS),))
    found = [one for changes in KINDS.values() for one in changes(model)]
    predicted = [one for one in found if isinstance(one, Prediction) and one.saves >= least]
    sane = [one for one in predicted if math.isfinite(one.predicted_s)]
    return WhatIf(
        tuple(sorted(sane, key=lambda one: one.predicted_s)),
        tuple(one for one in found if isinstance(one, Declined)),
    )
