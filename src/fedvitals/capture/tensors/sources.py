"""What a user may hand over as a model, as named tensors: an `nn.Module`, a state dict, or a list of numpy arrays
(what Flower hands over).

Integer tensors are left out (they have no direction), and so is what is no tensor at all: a state dict may carry
anything as a module's extra state.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

Tensors = nn.Module | Mapping[str, "Tensor | np.ndarray"] | Sequence["Tensor | np.ndarray"]
Entry = tuple[str, Tensor, bool | None]  # name, values, and whether it is trained, where that is known


class Choice(NamedTuple):
    """Which of a source's tensors are layers, as another process chose: it saw shared parameters that lie apart here,
    and counters that are floats here."""

    tensors: int  # that a source has which it was chosen of
    left_out: tuple[int, ...]  # places among them


_WRAPPED = re.compile(r"^(?:module\.|_orig_mod\.)+|(?<=\.)_orig_mod\.")
_NUMBERS = "biufc"  # numpy's letters for the kinds that are numbers


def has_names(source: Tensors) -> bool:
    return isinstance(source, nn.Module | Mapping)


def taken(source: Tensors) -> Tensors:
    """A module as its state dict, for who looks at it several times: making one costs more than most looks."""
    return source.state_dict() if isinstance(source, nn.Module) else source


def entries(source: Tensors) -> Iterable[Entry]:
    """All tensors, in order; a shared one under each of its names."""
    if isinstance(source, nn.Module):
        trainable = {
            name: parameter.requires_grad for name, parameter in source.named_parameters(remove_duplicate=False)
        }
        for name, value in source.state_dict().items():
            if _is_numbers(value):
                yield name, tensor_of(value), trainable.get(name, False)
    elif isinstance(source, Mapping):
        for name, value in source.items():
            if _is_numbers(value):
                yield str(name), tensor_of(value), None
    else:
        for index, value in enumerate(source):
            yield f"array.{index}", tensor_of(value), None


def has_direction(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def floats(source: Tensors) -> list[Entry]:
    """Those that have a direction."""
    return [entry for entry in entries(source) if has_direction(entry[1])]


def distinct(entries: Sequence[Entry]) -> list[int]:
    """Which of them to take so that a shared parameter, which has two names and one memory, counts once."""
    seen: set[tuple[int, tuple[int, ...], tuple[int, ...]]] = set()
    kept = []
    for index, (_, tensor, _) in enumerate(entries):
        place = (tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()))
        if tensor.numel() and place in seen:  # empty tensors all share address 0
            continue
        seen.add(place)
        kept.append(index)
    return kept


@functools.lru_cache(4_096)
def bare(name: str) -> str:
    """A parameter's name without those of what torch.compile and DataParallel put around its module."""
    return _WRAPPED.sub("", name)


class Ways:
    """From a source to the tensors of these names, without a state dict where a module has an ordinary one."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        parted = [name.rpartition(".") for name in names]
        self._ways = [(tuple(path.split(".")) if path else (), last) for path, _, last in parted]

    def into(self, source: Tensors) -> list[Any] | None:
        """None where they are not all there, or a module has ways of its own to tell of its state."""
        try:
            if isinstance(source, nn.Module):
                return self._into_module(source)
            return [source[name] for name in self._names] if isinstance(source, Mapping) else None
        except KeyError:
            return None

    def _into_module(self, module: nn.Module) -> list[Any] | None:
        found = []
        for path, last in self._ways:
            part = module
            for name in path:
                if not _tells_plainly(part):
                    return None
                part = part._modules[name]  # type: ignore[assignment]  # one that is None has no parameters either
            if not _tells_plainly(part):
                return None
            value = part._parameters.get(last)
            found.append(part._buffers[last] if value is None else value)
        return found


def _tells_plainly(part: nn.Module | None) -> bool:
    """Whether a module's state dict is its parameters and buffers, and nothing else has a say in it."""
    if part is None or part._state_dict_hooks or part._state_dict_pre_hooks:
        return False
    kind = type(part)
    plain, saved = nn.Module.state_dict, nn.Module._save_to_state_dict
    return kind.state_dict is plain and kind._save_to_state_dict is saved


def tensor_of(value: Any) -> Tensor:
    """A tensor, an array or a number as a tensor; arrays share their memory where torch can."""
    if isinstance(value, Tensor):
        return value.detach()
    array = np.asarray(value)
    if not array.flags.writeable or not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))  # torch shares memory only with plain, writable arrays
    return torch.from_numpy(np.ascontiguousarray(array).reshape(array.shape))


def _is_numbers(value: Any) -> bool:
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.kind in _NUMBERS
    return isinstance(value, Tensor | int | float | complex)
