"""From a model to what the compiled trainer takes: dense layers and convolutions, each with what follows it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from fedvitals.train.compiled.library import DENSE, MOST_LAYERS, PICTURE, LayerStructure
from fedvitals.train.flat import FlatModel

MOST_WEIGHTS = 1 << 20  # larger models are in nobody's cache, and torch's products are the better ones there


@dataclass(frozen=True, slots=True)
class Layer:
    """A dense layer or a convolution; where its weights lie in a flat row, and what is done with what comes out."""

    kind: int
    inputs: int
    outputs: int
    weight: int
    bias: int  # -1: none
    relu: bool = False
    pool: bool = False
    kernel: int = 0
    pad: int = 0
    height: int = 0  # of what goes in
    width: int = 0

    @property
    def multiplications(self) -> int:
        """Of one row, forward."""
        if self.kind == DENSE:
            return self.inputs * self.outputs
        return self.inputs * self.outputs * self.kernel**2 * self.height * self.width

    @property
    def weights(self) -> int:
        return self.outputs * (self.inputs * max(self.kernel, 1) ** 2 + (self.bias >= 0))

    def structure(self) -> LayerStructure:
        return LayerStructure(**{name: int(getattr(self, name)) for name in self.__slots__})


@dataclass(frozen=True, slots=True)
class Program:
    """Layers one after the other; the scores of the last go into cross entropy."""

    layers: tuple[Layer, ...]
    size: int  # of a flat row
    classes: int

    @property
    def multiplications(self) -> int:
        """Of one row, forward."""
        return sum(layer.multiplications for layer in self.layers)


def program_of(model: FlatModel, row: tuple[int, ...]) -> Program | None:
    """None for anything but a chain of layers known here. `row` is the shape of one of the data's rows."""
    module = model.module
    if type(module) is not nn.Sequential or model.trainable is not None or model.integers or model.hooked:
        return None
    where = {layer.name: part.start for layer, part in zip(model.layers, model.slices, strict=True)}
    reader = _Reader(row, where)
    for name, part in module._modules.items():  # not named_children(): that gives a module in two places only once
        if not reader.takes(name, part):
            return None
    return reader.program(model.size)


class _Reader:
    """Goes through a chain, and keeps what it has and the shape of what comes out."""

    def __init__(self, row: tuple[int, ...], where: Mapping[str, int]) -> None:
        self._shape = row
        self._where = where
        self._layers: list[dict[str, int | bool]] = []

    def takes(self, name: str, part: nn.Module | None) -> bool:
        """Whether this layer could be added."""
        if type(part) is nn.Flatten and part.start_dim == 1 and part.end_dim == -1:
            self._shape = (math.prod(self._shape),)
            return True
        if type(part) is nn.ReLU:
            return self._add_relu()
        if type(part) is nn.MaxPool2d:
            return self._add_pool(part)
        if type(part) is nn.Linear:
            return self._add_dense(name, part)
        if type(part) is nn.Conv2d:
            return self._add_picture(name, part)
        return False

    def program(self, size: int) -> Program | None:
        ends_in_scores = self._layers and self._layers[-1]["kind"] == DENSE and not self._layers[-1]["relu"]
        if not ends_in_scores or len(self._layers) > MOST_LAYERS:
            return None
        layers = tuple(Layer(**one) for one in self._layers)  # type: ignore[arg-type]  # they are its fields
        weights = sum(one.weights for one in layers)
        return None if weights != size or size > MOST_WEIGHTS else Program(layers, size, layers[-1].outputs)

    def _add_relu(self) -> bool:
        if not self._layers:
            return False
        self._layers[-1]["relu"] = True  # twice is the same as once
        return True

    def _add_pool(self, part: nn.MaxPool2d) -> bool:
        how = tuple(_pair(side) for side in (part.kernel_size, part.stride, part.padding, part.dilation))
        plain = how == ((2, 2), (2, 2), (0, 0), (1, 1)) and not (part.ceil_mode or part.return_indices)
        if not plain or len(self._shape) != 3 or not self._layers or self._layers[-1]["pool"]:
            return False
        channels, height, width = self._shape
        self._layers[-1]["pool"] = True
        self._shape = (channels, height // 2, width // 2)
        return min(self._shape) > 0

    def _add_dense(self, name: str, part: nn.Linear) -> bool:
        if self._shape != (part.in_features,) or not self._known(name, part):
            return False
        self._layers.append(self._layer(DENSE, name, part.in_features, part.out_features))
        self._shape = (part.out_features,)
        return True

    def _add_picture(self, name: str, part: nn.Conv2d) -> bool:
        how = (part.stride, part.dilation, part.groups, part.padding_mode)
        square = len(set(part.kernel_size)) == 1 and not isinstance(part.padding, str) and len(set(part.padding)) == 1
        if how != ((1, 1), (1, 1), 1, "zeros") or not square or not self._known(name, part):
            return False
        if len(self._shape) != 3 or self._shape[0] != part.in_channels:
            return False
        _, height, width = self._shape
        kernel, pad = part.kernel_size[0], int(part.padding[0])
        layer = self._layer(PICTURE, name, part.in_channels, part.out_channels)
        self._layers.append(layer | {"kernel": kernel, "pad": pad, "height": height, "width": width})
        self._shape = (part.out_channels, height + 2 * pad - kernel + 1, width + 2 * pad - kernel + 1)
        return min(self._shape) > 0

    def _known(self, name: str, part: nn.Module) -> bool:
        """False when a weight or bias is tied: it lies under the name of its first place."""
        return all(f"{name}.{own}" in self._where for own, _ in part.named_parameters())

    def _layer(self, kind: int, name: str, inputs: int, outputs: int) -> dict[str, int | bool]:
        return {
            "kind": kind,
            "inputs": inputs,
            "outputs": outputs,
            "weight": self._where[f"{name}.weight"],
            "bias": self._where.get(f"{name}.bias", -1),
            "relu": False,
            "pool": False,
        }


def _pair(side: int | tuple[int, ...]) -> tuple[int, ...]:
    return (side, side) if isinstance(side, int) else tuple(side)
