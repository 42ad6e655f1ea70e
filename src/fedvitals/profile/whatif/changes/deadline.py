"""What if rounds went on without clients that are not done by a deadline."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedvitals.profile.whatif.model import Model
from fedvitals.profile.whatif.prediction import Declined, Prediction
from fedvitals.profile.whatif.simulate import Change, simulated
from fedvitals.profile.whatif.telling import about_late, difference, told_of

KIND = "deadline"
SHARES = (0.8, 0.9, 0.95)  # of the updates that are in time
LEAST_KEPT = 0.5  # of a round's updates


def changes(model: Model) -> Iterator[Prediction | Declined]:
    """The shortest deadline that leaves every round at least half of its updates."""
    if not model.side_by_side:
        return
    took = [task.seconds for some in model.history.values() for task in some if task.delivered]
    for share in SHARES if took else ():
        found = with_deadline(model, rounded_up(float(np.quantile(took, share))), LEAST_KEPT)
        if found is not None:
            yield found
            return


def rounded_up(seconds: float) -> float:
    """To three digits, so that what is predicted is what a person would type."""
    if seconds <= 0:
        return 0.0
    unit = 10.0 ** (np.floor(np.log10(seconds)) - 2)
    return float(f"{np.ceil(seconds / unit - 1e-9) * unit:.3g}")


def with_deadline(model: Model, deadline_s: float, least_kept: float = 0.0) -> Prediction | None:
    """None where clients do not work side by side, or a round would be left with (nearly) no update."""
    if not model.side_by_side or deadline_s <= 0:
        return None
    was, after = model.before, simulated(model, Change(deadline_s=deadline_s))
    kept = zip(was.updates, after.updates, strict=True)
    if any(left < max(1.0, least_kept * had) for had, left in kept if had):
        return None
    lost = 1.0 - sum(after.updates) / max(sum(was.updates), 1)
    assumes = [
        f"{lost:.0%} of the updates come too late and are not used, and what that does to learning is not predicted"
        if lost >= 0.005
        else "every update that was used comes in time",
        about_late(model),
        model.draw.assumes,
    ]
    return told_of(
        model,
        KIND,
        f"go on after {deadline_s:g} s (deadline)",
        difference(was, after),
        assumes,
        {"server.deadline_s": deadline_s},
    )
