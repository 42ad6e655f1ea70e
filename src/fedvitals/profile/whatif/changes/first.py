"""What if rounds went on with the first m of their n clients (Bonawitz et al., MLSys 2019)."""

from __future__ import annotations

import math
from collections.abc import Iterator

from fedvitals.profile.whatif.model import Model
from fedvitals.profile.whatif.prediction import Declined, Prediction
from fedvitals.profile.whatif.simulate import Change
from fedvitals.profile.whatif.telling import about_late, less_by, told_of

KIND = "first"
SHARE = 0.8


def changes(model: Model) -> Iterator[Prediction | Declined]:
    """Four of five, or one less than all of fewer."""
    found = first(model, min(math.ceil(SHARE * model.asked), model.asked - 1))
    if found is not None:
        yield found


def first(model: Model, wanted: int) -> Prediction | None:
    """None where clients do not work side by side, or so many are waited for as it is."""
    now = model.patience[0]
    asked = model.asked
    if not model.side_by_side or not 1 <= wanted < asked or (now is not None and now <= wanted):
        return None
    assumes = [
        f"{asked - wanted} of {asked} updates a round are not used, and what that does to learning is not predicted",
        about_late(model),
        model.draw.assumes,
    ]
    return told_of(
        model,
        KIND,
        f"wait for the first {wanted} of {asked}",
        less_by(model, Change(wanted=wanted)),
        assumes,
        {"train.clients_per_round": wanted, "server.over_select": asked / wanted},
    )
