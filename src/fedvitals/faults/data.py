"""What can go wrong with the rows a client trains on. Each spoils the same rows of a client in every round."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fedvitals.errors import JobError
from fedvitals.faults.fault import DataFault, Owner
from fedvitals.randomness import stream

if TYPE_CHECKING:
    from torch import Tensor

TARGET = 0  # the label that a backdoor wants to see


class LabelFlip(DataFault):
    """`of = "classes"`: that share of the classes the client holds, at least one, each taken for another one of them
    (a lone class for the next one). `of = "rows"`: that share of its rows, each taken for the next class."""

    __slots__ = ()
    kind = "label-flip"
    imitates = "An attacker, or a wrong class list: some classes are consistently taken for others."
    finding = "FL607"
    measures = "share of the client's classes, or of its rows, that is flipped"
    default_strength = 1.0
    highest = 1.0

    def spoilt(self, x: Tensor, y: Tensor, owner: Owner) -> tuple[Tensor, Tensor]:
        if self.of == "rows":
            rows = _some_rows(self.kind, self.strength, y, owner)
            flipped = y.clone()
            flipped[rows] = (y[rows] + 1) % owner.classes
            return x, flipped
        held = sorted(set(y.tolist()))
        count = max(1, round(self.strength * len(held)))
        cycle = stream(owner.seed, self.kind, owner.client).permutation(held)[:count].tolist()
        taken_for = dict(zip(cycle, [*cycle[1:], cycle[0]], strict=True))
        if count == 1:
            taken_for = {cycle[0]: (cycle[0] + 1) % owner.classes}
        return x, _relabelled(y, taken_for)


class LabelNoise(DataFault):
    __slots__ = ()
    kind = "label-noise"
    imitates = "Careless annotation: a share of the rows carries some other label."
    finding = "FL507"
    measures = "share of the client's rows"
    default_strength = 0.3
    highest = 1.0

    def spoilt(self, x: Tensor, y: Tensor, owner: Owner) -> tuple[Tensor, Tensor]:
        rows = _some_rows(self.kind, self.strength, y, owner)
        shifts = stream(owner.seed, self.kind, owner.client, "shift").integers(1, owner.classes, len(rows))
        noisy = y.clone()
        noisy[rows] = (y[rows] + y.new_tensor(shifts.tolist())) % owner.classes
        return x, noisy


class NanBatch(DataFault):
    """One row is enough: whichever batch it falls into, once an epoch, is NaN."""

    __slots__ = ()
    kind = "nan-batch"
    imitates = "A broken sensor or a bad join: a row holds NaN, and so does the batch that it falls into."
    finding = "FL405"
    measures = "how many rows hold a NaN"
    default_strength = 1.0
    lowest = 1.0
    whole = True

    def spoilt(self, x: Tensor, y: Tensor, owner: Owner) -> tuple[Tensor, Tensor]:
        _refuse_tokens(self.kind, x)
        count = min(int(self.strength), len(x))
        generator = stream(owner.seed, self.kind, owner.client)
        rows = generator.choice(len(x), count, replace=False).tolist()
        spoilt = x.clone()
        spoilt.view(len(x), -1)[rows, int(generator.integers(x[0].numel()))] = math.nan
        return spoilt, y


class UnnormalisedInput(DataFault):
    """A factor of 255 is the forgotten division of bytes, 16 that of the digits; the default lies between."""

    __slots__ = ()
    kind = "unnormalised-input"
    imitates = "A client that forgot to divide its pixels by 255, or to standardise its features."
    finding = "FL506"
    measures = "factor on every feature"
    default_strength = 50.0

    def spoilt(self, x: Tensor, y: Tensor, owner: Owner) -> tuple[Tensor, Tensor]:
        _refuse_tokens(self.kind, x)
        return x * self.strength, y


class SwappedFeatures(DataFault):
    """Vectors: columns. Sequences [time, channels]: channels. Images: pixels. Tokens: their numbers."""

    __slots__ = ()
    kind = "swapped-features"
    imitates = "A client whose columns stand in another order: another export, another vocabulary."
    finding = "FL506"

    def spoilt(self, x: Tensor, y: Tensor, owner: Owner) -> tuple[Tensor, Tensor]:
        generator = stream(owner.seed, self.kind, owner.client)
        if not x.is_floating_point():
            return x.new_tensor(_shuffled(generator.permutation(int(x.max()) + 1).tolist()))[x], y
        if x.dim() == 3:
            return x[:, :, _shuffled(generator.permutation(x.shape[2]).tolist())], y
        order = _shuffled(generator.permutation(x[0].numel()).tolist())
        return x.view(len(x), -1)[:, order].view(x.shape), y


class Backdoor(DataFault):
    __slots__ = ()
    kind = "backdoor"
    imitates = "An attacker that teaches the model to see class 0 wherever a small patch is."
    finding = "FL608"
    measures = "share of the client's rows that carry the patch"
    default_strength = 0.3
    highest = 1.0

    def spoilt(self, x: Tensor, y: Tensor, owner: Owner) -> tuple[Tensor, Tensor]:
        rows = _some_rows(self.kind, self.strength, y, owner)
        with_patch, labels = x.clone(), y.clone()
        with_patch[rows] = patched(x[rows])
        labels[rows] = TARGET
        return with_patch, labels


def patched(x: Tensor) -> Tensor:
    """Rows with the backdoor's patch: to plant it, and to see later whether it took.

    Images: the bottom right corner, an eighth of the side but at least 2. Vectors: the last tenth of the features;
    sequences: of the steps. It is as bright as 1, or as 3 where values go beyond 1. Tokens: the last two become 0.
    """
    patched = x.clone()
    value = 1.0 if not x.numel() or float(x.max()) <= 1.0 else 3.0
    if not x.is_floating_point():
        patched[:, -2:] = 0
    elif x.dim() == 4:
        side = max(2, x.shape[-1] // 8)
        patched[:, :, -side:, -side:] = value
    else:
        patched[:, -math.ceil(x.shape[1] / 10) :] = value
    return patched


def _some_rows(purpose: str, share: float, y: Tensor, owner: Owner) -> Tensor:
    """This share of the rows, at least one, always the same ones."""
    order = stream(owner.seed, purpose, owner.client, "rows").permutation(len(y))
    return y.new_tensor(sorted(order[: max(1, round(share * len(y)))].tolist()))


def _relabelled(y: Tensor, taken_for: dict[int, int]) -> Tensor:
    flipped = y.clone()
    for label, other in taken_for.items():
        flipped[y == label] = other
    return flipped


def _shuffled(order: list[int]) -> list[int]:
    """A draw that left everything in place is turned by one: a fault must do something where it can."""
    return order if order != sorted(order) else order[1:] + order[:1]


def _refuse_tokens(kind: str, x: Tensor) -> None:
    if not x.is_floating_point():
        raise JobError(f"faults: {kind} spoils numbers, but these rows are tokens; take label-flip or swapped-features")
