"""A model whose parameters, float buffers and gradients each live in one vector.

So loading a model is a copy, an update a subtraction, and a step of SGD one operation, however many layers there are.
The order is the recorder's own layout, so that rows go to it as they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fedvitals.capture.tensors import FlatRow, Flattener
from fedvitals.errors import TrainingError
from fedvitals.vocabulary import Layer


class FlatModel:
    """Takes over a module: its parameters become views of `weights`, their gradients views of `gradient`."""

    def __init__(self, module: nn.Module) -> None:
        _require_float32(module)
        self.module = module
        self.flattener = Flattener(module)
        self.layers: tuple[Layer, ...] = self.flattener.layout.layers
        self.size = self.flattener.size
        self.weights = self.flattener.row(module)
        self.gradient = torch.zeros_like(self.weights)
        self.slices = _slices(self.layers)
        self.trainable = _trainable(self.layers, self.slices, self.size)
        self._counted = bool(self.integers)
        self._adopt()

    @property
    def integers(self) -> dict[str, Tensor]:
        """Buffers that are counted, not averaged: copies."""
        state = self.module.state_dict()
        return {n: t.clone() for n, t in state.items() if not t.is_floating_point() and not t.is_complex()}

    def as_source(self) -> FlatRow:
        """For the recorder: the weights as they lie here."""
        return FlatRow(self.flattener, self.weights, self.integers if self._counted else {})

    def load_integers(self, values: Mapping[str, Tensor]) -> None:
        if values:
            state = self.module.state_dict()
            for name, value in values.items():
                state[name].copy_(value)

    def named(self, row: Tensor) -> dict[str, Tensor]:
        """A row as named tensors: views, for codecs and hooks."""
        return {layer.name: row[part].view(layer.shape) for layer, part in zip(self.layers, self.slices, strict=True)}

    def from_named(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The row of such a dict."""
        return self.flattener.row(tensors)

    def sha256(self) -> str:
        """Of the whole state: the name of the result of a training."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.module.state_dict().items()):
            digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    def _adopt(self) -> None:
        where = {layer.name: part for layer, part in zip(self.layers, self.slices, strict=True)}
        for name, parameter in self.module.named_parameters():
            part = where[name]
            parameter.data = _laid(self.weights[part], parameter.shape)
            if parameter.requires_grad:
                parameter.grad = self.gradient[part].view(parameter.shape)
        for prefix, owner in self.module.named_modules():
            for short, buffer in owner.named_buffers(recurse=False):
                name = f"{prefix}.{short}" if prefix else short
                if name in where and buffer.is_floating_point():
                    owner._buffers[short] = self.weights[where[name]].view(buffer.shape)


def _laid(values: Tensor, shape: torch.Size) -> Tensor:
    """Values in a shape. Kernels over one channel are marked as channels-last, which for them is the same memory: the
    convolution then gives its output channels-last, and pooling after it runs several times faster."""
    if len(shape) == 4 and shape[1] == 1:
        return values.as_strided(shape, (shape[2] * shape[3], 1, shape[3], 1))
    return values.view(shape)


def _slices(layers: tuple[Layer, ...]) -> tuple[slice, ...]:
    offset, found = 0, []
    for layer in layers:
        found.append(slice(offset, offset + layer.size))
        offset += layer.size
    return tuple(found)


def _trainable(layers: tuple[Layer, ...], slices: tuple[slice, ...], size: int) -> Tensor | None:
    """Which values SGD moves, as a mask; None when it moves all."""
    if all(layer.trainable for layer in layers):
        return None
    mask = torch.zeros(size, dtype=torch.bool)
    for layer, part in zip(layers, slices, strict=True):
        mask[part] = bool(layer.trainable)
    return mask


def _require_float32(module: nn.Module) -> None:
    for name, tensor in module.state_dict().items():
        if (tensor.is_floating_point() or tensor.is_complex()) and tensor.dtype != torch.float32:
            raise TrainingError(f"the model's {name} is {tensor.dtype}; the engine trains float32: call .float() on it")
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise TrainingError("the model has no parameter that requires a gradient: there is nothing to train")
