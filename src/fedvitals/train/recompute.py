"""Activations computed twice instead of kept (gradient checkpointing; Chen et al. 2016): memory for time.

A chain of n layers is cut into about sqrt(n) segments. Only what goes from segment to segment is kept; the backward
pass computes a segment's activations again when it comes to it. The numbers are those of the plain forward pass:
dropout draws the same masks again, and what the first pass wrote to buffers, such as running statistics, is not written
twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from fedvitals.errors import JobError, TrainingError

LEAST_LAYERS = 4  # of a chain: fewer have nothing between that could be left out
Contexts = tuple[AbstractContextManager[None], AbstractContextManager[None]]
Kept = list[tuple[nn.Module, str, Tensor]]  # whose buffer, its name there, and its values


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
        self._layers = layers
        self._draws = draws
        self._buffered = any(True for layer in layers for _ in layer.buffers())

    def __call__(self, x: Tensor) -> Tensor:
        for layer in self._layers:
            x = layer(x)
        return x

    def recomputed(self, x: Tensor) -> Tensor:
        version = x._version
        y: Tensor = checkpoint(self, x, use_reentrant=False, preserve_rng_state=self._draws, context_fn=self._contexts)
        if x._version != version:
            first = type(self._layers[0]).__name__
            raise TrainingError(
                f"train.checkpoint = true: a layer behind {first} overwrites its input, which is needed again; "
                "let it return a new tensor"
            )
        return y

    def _contexts(self) -> Contexts:
        if not self._buffered:
            return nullcontext(), nullcontext()
        kept: Kept = []
        return self._first(kept), _again(kept)

    @contextmanager
    def _first(self, kept: Kept) -> Iterator[None]:
        """The first pass: what the buffers held before it."""
        kept += [(owner, name, buffer.clone()) for owner, name, buffer in self._buffers()]
        yield

    def _buffers(self) -> Iterator[tuple[nn.Module, str, Tensor]]:
        for layer in self._layers:
            for owner in layer.modules():
                for name, buffer in owner.named_buffers(recurse=False):
                    yield owner, name, buffer


@contextmanager
def _again(kept: Kept) -> Iterator[None]:
    """The second pass reads and writes copies, which nobody sees afterwards."""
    real = [(owner, name, owner._buffers[name]) for owner, name, _ in kept]
    try:
        for owner, name, values in kept:
            owner._buffers[name] = values
        yield
    finally:
        for owner, name, buffer in real:
            owner._buffers[name] = buffer
