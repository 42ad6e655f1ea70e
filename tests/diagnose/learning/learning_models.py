"""Models that are drawn badly, or built so that gradients die or explode, for jobs that name them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import nn


def _net(
    shape: Sequence[int],
    classes: int,
    hidden: Sequence[int],
    activation: type[nn.Module],
    change: Callable[[nn.Parameter], object],
) -> nn.Module:
    sizes = [math.prod(shape), *hidden]
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), activation()]
    net = nn.Sequential(*layers, nn.Linear(sizes[-1], classes))
    with torch.no_grad():
        for parameter in net.parameters():
            change(parameter)
    return net


def zero(shape: Sequence[int], classes: int) -> nn.Module:
    return _net(shape, classes, [32], nn.ReLU, lambda one: one.zero_())


def constant(shape: Sequence[int], classes: int) -> nn.Module:
    return _net(shape, classes, [32], nn.ReLU, lambda one: one.fill_(0.05))


def huge(shape: Sequence[int], classes: int) -> nn.Module:
    return _net(shape, classes, [32], nn.ReLU, lambda one: one.normal_(0, 2.0))


def tiny(shape: Sequence[int], classes: int) -> nn.Module:
    return _net(shape, classes, [32, 32], nn.ReLU, lambda one: one.normal_(0, 1e-4))


def dead(shape: Sequence[int], classes: int) -> nn.Module:
    return _net(shape, classes, [32], nn.ReLU, lambda one: one.fill_(-50.0) if one.shape == (32,) else one)


def zero_logistic(shape: Sequence[int], classes: int) -> nn.Module:
    return _net(shape, classes, [], nn.ReLU, lambda one: one.zero_())


def deep_sigmoid(shape: Sequence[int], classes: int) -> nn.Module:
    return _net(shape, classes, [24] * 7, nn.Sigmoid, lambda one: one)


def explosive(shape: Sequence[int], classes: int) -> nn.Module:
    return _net(shape, classes, [32] * 6, nn.ReLU, lambda one: one.mul_(4.0))
