"""Activations computed twice instead of kept (gradient checkpointing; Chen et al. 2016): memory for time.

A chain of n layers is cut into about sqrt(n) segments. Only what goes from segment to segment is kept; the backward
pass computes a segment's activations again when it comes to it. The numbers are those of the plain forward pass:
dropout draws the same masks again, and what the first pass wrote to buffers, such as running statistics, is not written
twice. Not `torch.utils.checkpoint`: that loads torch's compiler, which takes 1.5 s and more memory than it may save.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fedvitals.errors import JobError, TrainingError

LEAST_LAYERS = 4  # of a chain: fewer have nothing between that could be left out


def recompute_activations(module: nn.Module, *, draws: bool) -> None:
    """Let the longest `nn.Sequential` in a model recompute; `draws`: a forward pass may draw random numbers."""
    chains = [part for part in module.modules() if type(part) is nn.Sequential]
    chain = max(chains, key=lambda part: len(_layers(part)), default=None)
    longest = len(_layers(chain)) if chain is not None else 0
    if chain is None or longest < LEAST_LAYERS:
        found = f"its longest nn.Sequential has {longest} layers" if longest else "it has no nn.Sequential"
        raise JobError(
            f"train.checkpoint = true cannot save memory in this model: {found}; right is a chain of at least "
            f"{LEAST_LAYERS} layers, or train.checkpoint = false with train.accumulate"
        )
    segments = [_Segment(layers, draws=draws) for layers in _cut(_layers(chain))]
    # On the instance: names, weights and hooks of the module stay what they are.
    chain.forward = _forward(segments)  # type: ignore[method-assign]


def _layers(chain: nn.Module) -> list[nn.Module]:
    """In order, those of plain chains within included; a layer in two places is there twice."""
    found: list[nn.Module] = []
    for part in chain._modules.values():
        if part is not None:
            inner = type(part) is nn.Sequential and not part._forward_hooks and not part._forward_pre_hooks
            found += _layers(part) if inner else [part]
    return found


def _cut(layers: Sequence[nn.Module]) -> list[Sequence[nn.Module]]:
    """Segments of about equal length. None begins with a layer that overwrites its input: that is needed again."""
    length = math.ceil(len(layers) / round(math.sqrt(len(layers))))
    starts, wanted = [0], length
    for index in range(1, len(layers)):
        if index >= wanted and not getattr(layers[index], "inplace", False):
            starts.append(index)
            wanted = index + length
    return [layers[start:end] for start, end in zip(starts, [*starts[1:], len(layers)], strict=True)]


def _forward(segments: Sequence[_Segment]) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            for segment in segments[:-1]:
                x = segment.recomputed(x)
            return segments[-1](x)  # its backward comes at once
        for segment in segments:
            x = segment(x)
        return x

    return forward


class _Segment:
    """Some layers, one after the other."""

    def __init__(self, layers: Sequence[nn.Module], *, draws: bool) -> None:
        self.layers = layers
        self.draws = draws
        self._anchor = torch.empty(0, requires_grad=True)  # for a first segment, whose input needs no gradient

    def __call__(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x

    def recomputed(self, x: Tensor) -> Tensor:
        version = x._version
        y: Tensor = _Recomputed.apply(self, x, self._anchor)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        if x._version != version:
            first = type(self.layers[0]).__name__
            raise TrainingError(
                f"train.checkpoint = true: {first} or a layer behind it overwrites its input, which is needed again; "
                "let it return a new tensor"
            )
        return y


class _Recomputed(torch.autograd.Function):
    """A segment of which autograd keeps the input alone."""

    @staticmethod
    def forward(ctx: Any, segment: _Segment, x: Tensor, anchor: Tensor) -> Tensor:
        ctx.segment, ctx.before = segment, _Before(segment)
        y = segment(x)
        ctx.save_for_backward(x)
        return y

    @staticmethod
    def backward(ctx: Any, passed: Tensor) -> tuple[None, Tensor | None, None]:
        (x,) = ctx.saved_tensors
        x = x.detach().requires_grad_(ctx.needs_input_grad[1])
        with torch.enable_grad():
            with ctx.before.again():
                y = ctx.segment(x)
            # Of a number, whose gradient by y is `passed` to the last bit: given a gradient, torch would load sympy.
            total = (y * passed).sum()
        if total.requires_grad:
            total.backward()
        return None, x.grad, None


class _Before:
    """What a forward pass depends on beside its input and its weights, as it was before the first one."""

    def __init__(self, segment: _Segment) -> None:
        self._random = torch.get_rng_state() if segment.draws else None
        self._autocast = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
        owners = (owner for layer in segment.layers for owner in layer.modules())
        named = ((owner, *one) for owner in owners for one in owner.named_buffers(recurse=False))
        self._buffers = [(owner, name, buffer.clone()) for owner, name, buffer in named]

    @contextmanager
    def again(self) -> Iterator[None]:
        """The second pass starts from the same, and nobody sees what it draws and writes."""
        with ExitStack() as stack:
            if self._random is not None:
                stack.enter_context(torch.random.fork_rng(devices=[]))
                torch.set_rng_state(self._random)
            if self._autocast is not None:
                stack.enter_context(torch.autocast("cpu", dtype=self._autocast))
            for owner, name, values in self._buffers:
                stack.callback(owner._buffers.__setitem__, name, owner._buffers[name])
                owner._buffers[name] = values
            yield
