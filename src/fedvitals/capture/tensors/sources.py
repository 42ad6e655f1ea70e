"""What a user may hand over as a model, as named tensors: an `nn.Module`, a state dict, or a list of numpy arrays
(what Flower hands over).

Integer tensors are left out (they have no direction), and so is what is no tensor at all: a state dict may carry
anything as a module's extra state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

Tensors = nn.Module | Mapping[str, "Tensor | np.ndarray"] | Sequence["Tensor | np.ndarray"]
Entry = tuple[str, Tensor, bool | None]  # name, values, and whether it is trained, where that is known

_NUMBERS = "biufc"  # numpy's letters for the kinds that are numbers


def has_names(source: Tensors) -> bool:
    return isinstance(source, nn.Module | Mapping)


def taken(source: Tensors) -> Tensors:
    """A module as its state dict, for who looks at it several times: making one costs more than most looks."""
    return source.state_dict() if isinstance(source, nn.Module) else source


def floats(source: Tensors) -> list[Entry]:
    """All tensors that have a direction, in order; a shared one under each of its names."""
    return [entry for entry in _entries(source) if _has_direction(entry[1])]


def integers(source: Tensors) -> dict[str, Tensor]:
    """Copies of the others: counters and masks."""
    return {name: tensor.cpu().clone() for name, tensor, _ in _entries(source) if not _has_direction(tensor)}


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


def tensor_of(value: Any) -> Tensor:
    """A tensor, an array or a number as a tensor; arrays share their memory where torch can."""
    if isinstance(value, Tensor):
        return value.detach()
    array = np.asarray(value)
    if not array.flags.writeable or not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))  # torch shares memory only with plain, writable arrays
    return torch.from_numpy(np.ascontiguousarray(array).reshape(array.shape))


def _entries(source: Tensors) -> Iterable[Entry]:
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


def _is_numbers(value: Any) -> bool:
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.kind in _NUMBERS
    return isinstance(value, Tensor | int | float | complex)


def _has_direction(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()
