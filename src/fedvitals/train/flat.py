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
    """Takes over a module: its parameters become views of `weights`, their gradients views of `gradient`. A model that
    is not to be trained has none."""

    def __init__(self, module: nn.Module, *, trained: bool = True) -> None:
        _require_float32(module)
        self.module = module
        self.flattener = Flattener(module)
        self.layers: tuple[Layer, ...] = self.flattener.layout.layers
        self.size = self.flattener.size
        self.weights = self.flattener.row(module)
        self.gradient = torch.zeros_like(self.weights) if trained else self.weights.new_empty(0)
        self.slices = _slices(self.layers)
        self.trainable = _trainable(self.layers, self.slices, self.size)
        self._counted = bool(self.integers)
        self._source = FlatRow(self.flattener, self.weights, {})
        self._buffers: list[tuple[nn.Module, str, Tensor]] = []  # whose, its name there, and where it lies
        self._adopt()

    @property
    def integers(self) -> dict[str, Tensor]:
        """Buffers that are counted, not averaged: copies."""
        state = self.module.state_dict()
        return {n: t.clone() for n, t in state.items() if not t.is_floating_point() and not t.is_complex()}

    @property
    def statistics(self) -> frozenset[str]:
        """Buffers that are averaged, as those of BatchNorm: few, and a variance that was rounded may be below zero."""
        buffers = {name for name, _ in self.module.named_buffers()}
        return frozenset(layer.name for layer in self.layers if layer.name in buffers)

    @property
    def hooked(self) -> bool:
        """Whether somebody looks at, or changes, what goes from layer to layer."""
        parts = self.module.modules()
        return any(part._forward_hooks or part._forward_pre_hooks or part._backward_hooks for part in parts)

    def as_source(self) -> FlatRow:
        """For the recorder: the weights as they lie here. One object for all rounds: the recorder, which does not hold
        on to it, looks once more when the run ends."""
        if self._counted:
            self._source.integers = self.integers
        return self._source

    def load_integers(self, values: Mapping[str, Tensor]) -> None:
        if values:
            state = self.module.state_dict()
            for name, value in values.items():
                state[name].copy_(value)

    @torch.no_grad()
    def gather(self) -> None:
        """Take in buffers that a forward pass assigned anew instead of writing to them."""
        for owner, name, place in self._buffers:
            assigned = owner._buffers[name]
            if assigned is not None and assigned is not place:
                place.copy_(assigned)
            owner._buffers[name] = place

    @torch.no_grad()
    def released(self) -> nn.Module:
        """The module with memory of its own for every tensor, as torch and safetensors expect it. Ends this model."""
        for parameter in self.module.parameters():
            parameter.data = parameter.data.clone(memory_format=torch.contiguous_format)
            parameter.grad = None
        own = {id(place): place.clone() for _, _, place in self._buffers}
        for owner, name, place in self._buffers:
            owner._buffers[name] = own[id(place)]
        return self.module

    def named(self, row: Tensor) -> dict[str, Tensor]:
        """A row as named tensors: views, for codecs and hooks."""
        return {layer.name: row[part].view(layer.shape) for layer, part in zip(self.layers, self.slices, strict=True)}

    def whole(self) -> dict[str, Tensor]:
        """The model as one message: its weights, and buffers that are counted."""
        return self.named(self.weights) | self.integers

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
            if name not in where:
                raise TrainingError(
                    f"the model's {name} lies in another parameter's memory; assign the parameter itself to tie two"
                )
            part = where[name]
            parameter.data = _laid(self.weights[part], parameter.shape)
            if parameter.requires_grad and len(self.gradient):
                parameter.grad = self.gradient[part].view(parameter.shape)
        self._adopt_buffers(where)

    def _adopt_buffers(self, where: Mapping[str, slice]) -> None:
        places: dict[Tensor, Tensor] = {}  # by the buffer as it was: two names may stand for one
        for prefix, owner in self.module.named_modules():
            for short, buffer in owner.named_buffers(recurse=False):
                name = f"{prefix}.{short}" if prefix else short
                if name in where:
                    places[buffer] = self.weights[where[name]].view(buffer.shape)
                if buffer in places:
                    owner._buffers[short] = places[buffer]
                    self._buffers.append((owner, short, places[buffer]))


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
