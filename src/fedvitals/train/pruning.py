"""Weights cut away from the global model by magnitude, more from round to round, and messages of what is left.

The schedule is the cubic one of M. Zhu and S. Gupta, To Prune, or Not to Prune (2017): fast while there is much to
spare, slow at the end. The smallest weights of all matrices and kernels go first; biases and norms stay. What is cut is
0 and stays 0: clients hold still what arrives as 0, so both ends know which values live, and only those travel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedvitals.codecs import Codec, Feedback, Update
from fedvitals.errors import CodecError
from fedvitals.train.flat import FlatModel
from fedvitals.train.job import Job


@dataclass(frozen=True, slots=True, eq=False)
class Pruning:
    """From 0 after `first` rounds to `share` of the weights after `last` rounds."""

    share: float
    first: int
    last: int
    prunable: Tensor  # bool [size]

    @staticmethod
    def of(job: Job, model: FlatModel) -> Pruning | None:
        """What a job asks for; None where it cuts nothing."""
        return Pruning(job.server.prune, *job.pruning_rounds, prunable(model)) if job.server.prune else None

    def cut(self, rounds: int) -> float:
        """Share of the weights that are cut once so many rounds are over."""
        way = (rounds - self.first) / (self.last - self.first)
        return self.share * (1.0 - (1.0 - min(max(way, 0.0), 1.0)) ** 3)

    def mask(self, rounds: int, weights: Tensor) -> Tensor:
        """Which values live, bool [size]: the largest of what can be cut, and all else. Of equals the last live."""
        live = torch.ones_like(self.prunable)
        sizes = weights[self.prunable].abs()
        count = round(self.cut(rounds) * len(sizes))
        if count:
            edge = sizes.kthvalue(count).values  # NaN counts as the largest
            small, equal = sizes < edge, sizes == edge
            spare = count - int(small.sum())
            live[self.prunable] = ~(small | (equal & (equal.cumsum(0) <= spare)))
        return live


def prunable(model: FlatModel) -> Tensor:
    """Weights of matrices and kernels, as a mask."""
    mask = torch.zeros(model.size, dtype=torch.bool)
    for layer, part in zip(model.layers, model.slices, strict=True):
        mask[part] = bool(layer.trainable) and len(layer.shape) >= 2
    return mask


def held_still(received: Tensor, prunable: Tensor) -> Tensor:
    """For a client: what to multiply gradients by, so that what was cut stays cut."""
    return ((received != 0) | ~prunable).to(received.dtype)


def live_codec(codec: Codec, live: Mapping[str, Tensor]) -> Codec:
    """The codec for live values alone; itself where nothing was cut. What feedback keeps stays in the model's shape."""
    if not live:
        return codec
    if isinstance(codec, Feedback):
        return replace(codec, inner=LiveValues(codec.inner, live))
    return LiveValues(codec, live)


@dataclass(frozen=True, slots=True, eq=False)
class LiveValues:
    """Another codec, that gets to see live values alone; the others arrive as 0. `live`: masks by layer."""

    codec: Codec
    live: Mapping[str, Tensor]

    @property
    def config(self) -> dict[str, Any]:
        return {"id": "live", "codec": self.codec.config}

    @property
    def lossless(self) -> bool:
        return self.codec.lossless

    def encode(self, update: Update) -> bytes:
        return self.codec.encode(live_values(update, self.live))

    def decode(self, data: bytes) -> dict[str, Tensor]:
        return {name: self._whole(name, tensor) for name, tensor in self.codec.decode(data).items()}

    def error_bound(self, update: Update) -> float:
        lost = [float(update[name][~mask].abs().max()) for name, mask in self.live.items() if not bool(mask.all())]
        return max([self.codec.error_bound(live_values(update, self.live)), *lost])

    def _whole(self, name: str, tensor: Tensor) -> Tensor:
        if name not in self.live:
            return tensor
        mask = self.live[name]
        if tensor.shape != (int(mask.sum()),):
            raise CodecError(
                f"damaged update: layer {name!r} has {tuple(tensor.shape)} live values, {int(mask.sum())} are known"
            )
        whole = tensor.new_zeros(mask.shape)
        whole[mask] = tensor
        return whole


def live_layers(model: FlatModel, live: Tensor) -> dict[str, Tensor]:
    """The masks of layers of which something was cut; the others travel in their own shape."""
    return {name: mask for name, mask in model.named(live).items() if not bool(mask.all())}


def live_values(update: Update, live: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What travels of an update: of layers with a mask their live values in a row, the others as they are."""
    return {name: tensor[live[name]] if name in live else tensor for name, tensor in update.items()}


def live_bits(live: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The masks themselves, for a client that knows nothing: a bit a value."""
    return {f"{name} live": torch.from_numpy(np.packbits(mask.flatten().numpy())) for name, mask in live.items()}
