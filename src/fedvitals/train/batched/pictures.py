"""Layers over pictures with a client axis, forward and backward by hand: [clients, rows, channels, height, width].

In memory the channels come last, as oneDNN and the pooling like it best (measured: convolutions of 8 channels 1.2 times
and pooling several times faster than with the channels first).
"""

from __future__ import annotations

from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedvitals.train.batched.layers import NOTHING, Weightless


class Convolved:
    """nn.Conv2d, a call of oneDNN a client."""

    def __init__(self, layer: nn.Conv2d, weight: slice, bias: slice | None) -> None:
        self._layer = layer
        self._weight_part, self._bias_part = weight, bias
        self._how = tuple(tuple(int(side) for side in one) for one in (layer.stride, layer.padding, layer.dilation))
        self._x = self._kernels = self._weight = self._d_weight = self._d_bias = torch.empty(0)
        self._biases: list[Tensor | None] = []

    def bind(self, weights: Tensor, gradient: Tensor) -> None:
        shape = (weights.shape[0], *self._layer.weight.shape)
        self._weight, self._d_weight = (m[:, self._weight_part].view(shape) for m in (weights, gradient))
        self._biases = [None] * len(weights)
        if self._bias_part is not None:
            self._biases, self._d_bias = list(weights[:, self._bias_part]), gradient[:, self._bias_part]

    def forward(self, x: Tensor) -> Tensor:
        self._x = channels_last(x)
        self._kernels = channels_last(self._weight)
        stride, padding, dilation = self._how
        return stacked(
            [
                torch.conv2d(rows, kernels, bias, stride, padding, dilation)
                for rows, kernels, bias in zip(self._x, self._kernels, self._biases, strict=True)
            ]
        )

    def backward(self, dy: Tensor, *, wants_input: bool) -> Tensor | None:
        below = []
        mask = [wants_input, True, self._bias_part is not None]
        sizes = [self._layer.out_channels] if self._bias_part is not None else None
        for client, above in enumerate(channels_last(dy)):
            d_x, d_weight, d_bias = torch.ops.aten.convolution_backward(
                above, self._x[client], self._kernels[client], sizes, *self._how, False, [0, 0], 1, mask
            )
            self._d_weight[client] = d_weight
            if self._bias_part is not None:
                self._d_bias[client] = d_bias
            below.append(d_x)
        return stacked(below) if wants_input else None

    def forget(self) -> None:
        self._x = self._kernels = NOTHING


class Pooled(Weightless):
    """nn.MaxPool2d."""

    def __init__(self, layer: nn.MaxPool2d) -> None:
        self._how = [_pair(one) for one in (layer.kernel_size, layer.stride, layer.padding, layer.dilation)]
        self._ceil = layer.ceil_mode
        self._x = self._winners = torch.empty(0)

    def forward(self, x: Tensor) -> Tensor:
        self._x = channels_last(x).flatten(0, 1)
        y, self._winners = torch.ops.aten.max_pool2d_with_indices(self._x, *self._how, self._ceil)
        return y.unflatten(0, x.shape[:2])  # type: ignore[no-any-return]

    def backward(self, dy: Tensor, *, wants_input: bool) -> Tensor | None:
        below = torch.ops.aten.max_pool2d_with_indices_backward(
            channels_last(dy).flatten(0, 1), self._x, *self._how, self._ceil, self._winners
        )
        return below.unflatten(0, dy.shape[:2])  # type: ignore[no-any-return]

    def forget(self) -> None:
        self._x = self._winners = NOTHING


class PatchedAndPooled:
    """nn.Conv2d and nn.MaxPool2d(2) at the beginning of a chain, as one matrix product.

    Four neighbours share a winner, so they are computed together: from a patch one pixel wider than the kernel, by a
    matrix of four shifted kernels. Patches are made of rows alone, so they can be made once for all rounds. Forward and
    backward then take 0.6 of the time of a convolution of one channel and its pooling (28 x 28, 8 kernels of 5 x 5,
    batch 10), though the product multiplies by 11 zeros for each 25 weights; with patches made anew, 0.9.
    """

    def __init__(self, layer: nn.Conv2d, weight: slice, bias: slice | None) -> None:
        self._weight_part, self._bias_part = weight, bias
        self._shape = layer.weight.shape
        self._padding = int(layer.padding[0])
        self._patches = self._wide = self._weight = self._d_weight = self._bias = self._d_bias = torch.empty(0)
        self._four = self._two = torch.empty(0)

    def bind(self, weights: Tensor, gradient: Tensor) -> None:
        clients, (outputs, inputs, kernel, _) = len(weights), self._shape
        shape = (clients, *self._shape)
        self._weight, self._d_weight = (
            matrix[:, self._weight_part].view(shape).permute(0, 2, 3, 4, 1) for matrix in (weights, gradient)
        )
        self._wide = torch.zeros(clients, inputs, kernel + 1, kernel + 1, 2, 2, outputs)
        if self._bias_part is not None:
            self._bias, self._d_bias = weights[:, self._bias_part].unsqueeze(1), gradient[:, self._bias_part]

    def prepared(self, x: Tensor) -> Tensor:
        """Patches [rows, height, width, values] of rows [rows, channels, height, width]: one for four neighbours."""
        width = self._shape[2] + 1
        padded = F.pad(x, [self._padding] * 4)
        patches = padded.unfold(2, width, 2).unfold(3, width, 2).permute(0, 2, 3, 1, 4, 5)
        return patches.flatten(3)

    def forward(self, x: Tensor) -> Tensor:
        self._patches = x.flatten(1, 3)
        for right, below in NEIGHBOURS:
            self._shifted(self._wide, right, below).copy_(self._weight)
        self._four = torch.bmm(self._patches, self._wide.flatten(4).flatten(1, 3))
        self._two = _larger(self._four)
        y = _larger(self._two)
        if self._bias_part is not None:
            y += self._bias  # after pooling: both keep the order
        return y.view(*x.shape[:4], -1).permute(0, 1, 4, 2, 3)

    def backward(self, dy: Tensor, *, wants_input: bool) -> Tensor | None:
        passed = dy.permute(0, 1, 3, 4, 2).flatten(1, 3)
        if self._bias_part is not None:
            torch.sum(passed, 1, out=self._d_bias)
        patches = self._patches.transpose(1, 2)
        halves = _to_larger(torch.cat(_to_larger(passed, self._two), 2), self._four)
        wide = torch.cat([torch.bmm(patches, half) for half in halves], 2).view(self._wide.shape)
        parts = [self._shifted(wide, right, below) for right, below in NEIGHBOURS]
        self._d_weight.copy_(parts[0] + parts[1] + parts[2] + parts[3])
        return None

    def forget(self) -> None:
        self._patches = self._four = self._two = NOTHING

    def _shifted(self, wide: Tensor, right: int, below: int) -> Tensor:
        """Where the kernels of one of the four neighbours lie in the wide matrix: [clients, ., kernel, kernel, .]."""
        kernel = self._shape[2]
        return wide[:, :, below : below + kernel, right : right + kernel, right, below]


NEIGHBOURS = tuple(product((0, 1), (0, 1)))  # right and below, as they lie in a row of the product


def _larger(values: Tensor) -> Tensor:
    """Of the two halves of each row."""
    half = values.shape[2] // 2
    return torch.maximum(values[..., :half], values[..., half:])


def _to_larger(passed: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of `_larger`: to the half that was larger, and of equals to the first, as torch's pooling has it."""
    half = values.shape[2] // 2
    ahead = values[..., half:] - values[..., :half]
    second = torch.ops.aten.threshold_backward(passed, ahead, 0)
    return passed - second, second


def channels_last(x: Tensor) -> Tensor:
    """The same picture or kernels [clients, ...] with the channels last in memory."""
    return x.permute(0, 1, 3, 4, 2).contiguous().permute(0, 1, 4, 2, 3)


def stacked(pictures: list[Tensor]) -> Tensor:
    """One tensor of all clients' pictures."""
    if len(pictures) == 1:
        return pictures[0].unsqueeze(0)
    return torch.stack([one.permute(0, 2, 3, 1) for one in pictures]).permute(0, 1, 4, 2, 3)


def _pair(size: int | tuple[int, ...]) -> list[int]:
    return [size, size] if isinstance(size, int) else list(size)
