"""What can go wrong with an update between a client's training and the server, by malice or by a bug."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from fedvitals.faults.fault import Sending, UpdateFault
from fedvitals.randomness import key, stream

if TYPE_CHECKING:
    from torch import Tensor


class SignFlip(UpdateFault):
    __slots__ = ()
    kind = "sign-flip"
    imitates = "An attacker, or a minus sign in the wrong place: the update points the other way."
    finding = "FL601"
    measures = "size of the flipped update, as a factor"
    default_strength = 1.0

    def sent(self, update: Tensor, sending: Sending) -> Tensor:
        return update * -self.strength


class ScaledUpdate(UpdateFault):
    __slots__ = ()
    kind = "scaled-update"
    imitates = "An attacker that outvotes the others by size, or sums where it should average."
    finding = "FL602"
    measures = "factor on the update"
    default_strength = 5.0

    def sent(self, update: Tensor, sending: Sending) -> Tensor:
        return update * self.strength


class GaussianUpdate(UpdateFault):
    __slots__ = ()
    kind = "gaussian-update"
    imitates = "An attacker, or a broken device, that sends noise as large as an honest update."
    finding = "FL603"
    measures = "norm of the noise, in the cohort's median norms"
    default_strength = 1.0
    needs_cohort: ClassVar[bool] = True

    def sent(self, update: Tensor, sending: Sending) -> Tensor:
        norms = sorted(float(other.norm()) for other in sending.others) or [float(update.norm())]
        median = (norms[(len(norms) - 1) // 2] + norms[len(norms) // 2]) / 2
        return _noise(update, sending, self.kind, self.strength * median)


class ZeroUpdate(UpdateFault):
    __slots__ = ()
    kind = "zero-update"
    imitates = "A free rider that sends back the model it was given."
    finding = "FL604"

    def sent(self, update: Tensor, sending: Sending) -> Tensor:
        return update.new_zeros(update.shape)


class StaleUpdate(UpdateFault):
    """With fewer participations behind it, the oldest is sent again; the very first time there is only the true one."""

    __slots__ = ()
    kind = "stale-update"
    imitates = "A client that sends a cached update of an earlier participation again."
    finding = "FL605"
    measures = "participations ago"
    default_strength = 3.0
    lowest = 1.0
    highest = 100.0
    whole = True
    needs_past: ClassVar[bool] = True

    def sent(self, update: Tensor, sending: Sending) -> Tensor:
        ago = min(int(self.strength), len(sending.past))
        return (sending.past[-ago] if ago else update).clone()


class Duplicate(UpdateFault):
    """All duplicators of a round copy the same client."""

    __slots__ = ()
    kind = "duplicate"
    imitates = "A free rider or a sybil that copies an honest client's update, perhaps with a little noise."
    finding = "FL606"
    measures = "noise, as a share of the copy's norm"
    default_strength = 0.0
    needs_cohort: ClassVar[bool] = True

    def sent(self, update: Tensor, sending: Sending) -> Tensor:
        if not sending.others:
            return update.clone()
        copied = sending.others[key(sending.seed, "duplicate source", sending.round) % len(sending.others)]
        if self.strength == 0:
            return copied.clone()
        return copied + _noise(copied, sending, self.kind, self.strength * float(copied.norm()))


class NanUpdate(UpdateFault):
    __slots__ = ()
    kind = "nan-update"
    imitates = "Training that overflowed or divided by zero on the client: values of its update are NaN."
    finding = "FL405"
    measures = "how many values are NaN"
    default_strength = 1.0
    lowest = 1.0
    whole = True

    def sent(self, update: Tensor, sending: Sending) -> Tensor:
        count = min(int(self.strength), update.numel())
        generator = stream(sending.seed, self.kind, sending.client, sending.attempt)
        spoilt = update.clone()
        spoilt.view(-1)[generator.choice(update.numel(), count, replace=False).tolist()] = float("nan")
        return spoilt


def _noise(like: Tensor, sending: Sending, purpose: str, norm: float) -> Tensor:
    """Normal noise of this norm, the same whoever computes it."""
    import numpy as np
    import torch

    generator = stream(sending.seed, purpose, sending.client, sending.attempt)
    values = torch.from_numpy(generator.standard_normal(like.numel(), dtype=np.float32)).to(like.device, like.dtype)
    length = float(values.norm())
    return (values * (norm / length if length > 0 else 0.0)).view(like.shape)
