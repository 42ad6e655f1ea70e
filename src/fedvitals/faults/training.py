"""What can go wrong in how a client trains."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fedvitals.errors import JobError
from fedvitals.faults.fault import Layers, WorkFault

if TYPE_CHECKING:
    from fedvitals.faults.work import LocalWork


class ExplodingLr(WorkFault):
    __slots__ = ()
    kind = "exploding-lr"
    imitates = "A client whose learning rate is far too high, such as 10 instead of 0.1."
    finding = "FL412"
    measures = "factor on the learning rate"
    default_strength = 100.0

    def planned(self, work: LocalWork, layers: Layers) -> LocalWork:
        return replace(work, lr=work.lr * self.strength)


class TinyLr(WorkFault):
    __slots__ = ()
    kind = "tiny-lr"
    imitates = "A client whose learning rate is far too low, so that its update says next to nothing."
    finding = "FL413"
    measures = "divisor of the learning rate"
    default_strength = 1000.0
    lowest = 1.0

    def planned(self, work: LocalWork, layers: Layers) -> LocalWork:
        return replace(work, lr=work.lr / self.strength)


class FrozenLayer(WorkFault):
    """Without a strength the matrix before the last one stands still; where there is only one matrix, that one."""

    __slots__ = ()
    kind = "frozen-layer"
    imitates = "A parameter left with requires_grad = False, or out of the optimizer's list: it never moves."
    finding = "FL409"
    measures = "index of the trainable layer (default: the last matrix but one)"
    whole = True

    def planned(self, work: LocalWork, layers: Layers) -> LocalWork:
        return replace(work, frozen=tuple(sorted({*work.frozen, self.layer(layers)})))

    def layer(self, layers: Layers) -> int:
        """The index of the layer that stands still."""
        if self.strength >= 0:
            if self.strength >= len(layers):
                raise JobError(
                    f"faults: frozen-layer with strength = {self.strength:g}, but the model has the trainable layers 0 "
                    f"to {len(layers) - 1}"
                )
            return int(self.strength)
        matrices = [index for index, (_, shape) in enumerate(layers) if len(shape) >= 2]
        if not matrices:
            raise JobError("faults: frozen-layer finds no trainable matrix in this model; name a layer by strength")
        return matrices[-2] if len(matrices) > 1 else matrices[0]


class MissingZeroGrad(WorkFault):
    __slots__ = ()
    kind = "missing-zero-grad"
    imitates = "A training loop that forgot optimizer.zero_grad(): gradients pile up over the steps."
    finding = "FL414"

    def planned(self, work: LocalWork, layers: Layers) -> LocalWork:
        return replace(work, zero_grad=False)


class DroppedLastBatch(WorkFault):
    __slots__ = ()
    kind = "dropped-last-batch"
    imitates = "A loader with drop_last = True: the last, smaller batch of each epoch is never trained on."
    finding = "FL415"

    def planned(self, work: LocalWork, layers: Layers) -> LocalWork:
        return replace(work, drop_last=True)
