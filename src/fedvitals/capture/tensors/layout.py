"""Where each layer lies in a flattened update, and how anything a user hands over becomes such a row.

Shared parameters count once, halves are widened to float32, complex values are taken as pairs. What has no direction in
the source that a layout is made of stays left out of it: an average over all of a state makes floats of its counters.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedvitals.capture.tensors import kernel
from fedvitals.capture.tensors.sketch import allot_buckets
from fedvitals.capture.tensors.sources import (
    Choice,
    Tensors,
    Ways,
    bare,
    distinct,
    entries,
    floats,
    has_direction,
    has_names,
    tensor_of,
)
from fedvitals.vocabulary import Layer, Layout

MAX_UNITS = 64
PLAIN, FLOAT, STRIDED = frozenset((Tensor, nn.Parameter)), torch.float32, torch.strided
FINGERPRINT_VALUES = 4096  # a layer: enough to tell two models apart, cheap on a big one


class FlatRow:
    """A model that lies in a row already: what an engine with flat weights hands over, without a copy a layer."""

    def __init__(self, flattener: Flattener, row: Tensor, integers: Mapping[str, Tensor]) -> None:
        self.flattener = flattener
        self.row = row
        self.integers = integers


Source = FlatRow | Tensors


class Flattener:
    """Turns sources of one layout into rows of float32."""

    def __init__(self, source: Tensors, layout_id: int = 0, choice: Choice | None = None) -> None:
        everything = list(entries(source))
        places = [place for place, (_, tensor, _) in enumerate(everything) if has_direction(tensor)]
        directed = [everything[place] for place in places]
        self._positional = not has_names(source)
        self._all, self._given = len(everything), len(directed)
        if choice is not None and choice.tensors == self._all:
            elsewhere = set(choice.left_out)
            self._kept = [index for index, place in enumerate(places) if place not in elsewhere]
        else:
            self._kept = list(range(self._given)) if self._positional else distinct(directed)
        self._places = [places[index] for index in self._kept]
        self._left_out = set(range(self._all)).difference(places)
        self._directed = {name for name, _, _ in directed}
        self._known = {name for name, _, _ in everything}
        self._orders: dict[tuple[str, ...], dict[str, str]] = {}
        named = [directed[index] for index in self._kept]
        self.layout = Layout(layout_id, tuple(_layer(name, tensor, trainable) for name, tensor, trainable in named))
        self.size: int = sum(layer.size for layer in self.layout.layers)
        self.raw_bytes: int = sum(tensor.numel() * tensor.element_size() for _, tensor, _ in named)
        self.device = next((tensor.device for _, tensor, _ in named), torch.device("cpu"))
        self._names = [layer.name for layer in self.layout.layers]
        self._shapes = [layer.shape for layer in self.layout.layers]
        self._ways = Ways(self._names)
        buckets = allot_buckets(self.layout.layers)
        unit_layer, units = _unit_layer(self.layout.layers)
        self.layout = self.layout._replace(sketch_buckets=buckets, unit_layer=unit_layer, units=units)

    @functools.cached_property
    def choice(self) -> Choice:
        """For who makes a layout of the same model elsewhere, where this cannot be told by looking at it."""
        return Choice(self._all, tuple(sorted(set(range(self._all)).difference(self._places))))

    @property
    def plain(self) -> bool:
        """Whether a row is, byte by byte, what its tensors are: float32 all through."""
        return all(layer.dtype == "float32" for layer in self.layout.layers)

    @functools.cached_property
    def file_header(self) -> bytes:
        """Before a plain row, this makes a safetensors file of it: lengths and places of the layers as JSON."""
        places, offset = {}, 0
        for layer in self.layout.layers:
            end = offset + 4 * layer.size
            places[layer.name] = {"dtype": "F32", "shape": list(layer.shape), "data_offsets": [offset, end]}
            offset = end
        text = json.dumps(places, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        return len(text).to_bytes(8, "little") + text

    def numbered(self, layout_id: int) -> Flattener:
        """The same under another number."""
        other = copy.copy(self)
        other.layout = self.layout._replace(id=layout_id)
        return other

    def fits(self, source: Source, *, exactly: bool = False) -> bool:
        """Whether a source has the layers of this layout, and `exactly` no others; cheaper than making a layout."""
        if isinstance(source, FlatRow):
            return bool(source.flattener.layout.layers == self.layout.layers)
        if exactly and has_names(source) and any(name not in self._known for name, _, _ in floats(source)):
            return False
        try:
            tensors = self._ordered(source)
        except ValueError:
            return False
        return all(tuple(t.shape) == layer.shape for t, layer in zip(tensors, self.layout.layers, strict=True))

    @torch.no_grad()
    def row(self, source: Source) -> Tensor:
        """A copy of a source's values; ValueError when it does not fit this layout, saying where."""
        if isinstance(source, FlatRow):
            return source.row.to(device=self.device, dtype=torch.float32, copy=True)
        tensors = self._ordered(source)
        for layer, tensor in zip(self.layout.layers, tensors, strict=True):
            if tensor.shape != layer.shape:
                raise ValueError(f"{layer.name} has shape {tuple(tensor.shape)}, the model of the round {layer.shape}")
        if not tensors:
            return torch.empty(0, dtype=torch.float32, device=self.device)
        if not all(tensor.dtype is torch.float32 and tensor.device == self.device for tensor in tensors):
            tensors = [_real(tensor).to(device=self.device, dtype=torch.float32) for tensor in tensors]
        return torch.cat([tensor.reshape(-1) for tensor in tensors])

    def copied(self, state: Source, empty_row: Callable[[int], Tensor | None]) -> Tensor | None:
        """A copy of a state dict's values in a place that is asked for, in one go. None where it has other layers than
        these, or cannot be read as it lies, or there is no place: then `fits` and `row` tell more."""
        if isinstance(state, FlatRow):
            return self._copied_row(state, empty_row)
        if not isinstance(state, Mapping) or not kernel.in_use() or not self.size:
            return None
        tensors = self._as_they_lie(state)
        if tensors is None or floats(self.beside(state)):
            return None
        place = empty_row(self.size)
        return None if place is None else self._pieces.gather(tensors, place)

    def _copied_row(self, state: FlatRow, empty_row: Callable[[int], Tensor | None]) -> Tensor | None:
        row = state.row
        if not self.size or not row.is_cpu or row.dtype is not FLOAT or not self.fits(state):
            return None
        place = empty_row(self.size)
        return None if place is None else place.copy_(row.detach())

    def beside(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """What a state dict has under other names than those known here: mostly nothing, which is told quickly."""
        if state.keys() == self._known:
            return {}
        return {name: value for name, value in state.items() if name not in self._known}

    def left_out(self, source: Tensors) -> dict[str, Tensor]:
        """Copies of a source's counters and masks, which are no layers, whatever type they have by now."""
        if isinstance(source, Mapping):
            if source.keys() == self._directed:
                return {}
            source = {name: value for name, value in source.items() if name not in self._directed}
        found = list(entries(source))
        ordered = len(found) == self._all and (self._positional or not has_names(source))
        counters = self._left_out if ordered else ()
        names = self._known - self._directed
        return {
            name: tensor.cpu().clone()
            for place, (name, tensor, _) in enumerate(found)
            if not has_direction(tensor) or place in counters or name in names
        }

    def difference(self, source: Source, start: Tensor, place: Tensor | None = None) -> Tensor:
        """A source's values less this row, in `place` where it could be put there; ValueError as for `row`."""
        tensors = self._lying(source, start)
        return self.row(source).sub_(start) if tensors is None else self._pieces.difference(tensors, start, place)

    def surely_is(self, source: Source, row: Tensor) -> bool:
        """Whether a source is this row, bit by bit. False also where that could not be told without copying it."""
        tensors = self._lying(source, row)
        return tensors is not None and self._pieces.same(tensors, row)

    @functools.cached_property
    def _pieces(self) -> kernel.Pieces:
        return kernel.Pieces([layer.size for layer in self.layout.layers])

    def _lying(self, source: Source, row: Tensor) -> Sequence[Tensor] | None:
        """The source's own tensors, where the kernel can read them as they lie, beside this row; else None."""
        return self._as_they_lie(source) if kernel.takes_row(row) else None

    def _as_they_lie(self, source: Source) -> Sequence[Tensor] | None:
        if self._positional or isinstance(source, FlatRow):
            return None
        tensors = self._ways.into(source)
        if tensors is None:
            return None
        for tensor, shape in zip(tensors, self._shapes, strict=True):
            if type(tensor) not in PLAIN or tensor.dtype is not FLOAT or not tensor.is_cpu or tensor.shape != shape:
                return None
            if tensor.layout is not STRIDED or not tensor.is_contiguous():
                return None
        return tensors

    def stacked(self, states: Mapping[str, Tensor] | Tensor) -> Tensor:
        """Rows of a cohort: [clients, size], from a dict of stacked tensors or from such a matrix itself."""
        if not isinstance(states, Mapping):
            matrix = tensor_of(states)
            if matrix.dim() != 2 or matrix.shape[1] != self.size:
                raise ValueError(f"stacked states have shape {tuple(matrix.shape)}, expected (clients, {self.size})")
            return matrix.float()
        parts = [self._stacked_layer(states, layer) for layer in self.layout.layers]
        if len({len(part) for part in parts}) > 1:
            raise ValueError(f"stacked layers are of {sorted({len(part) for part in parts})} clients, not of as many")
        return torch.cat(parts, dim=1) if parts else torch.empty(0, 0, dtype=torch.float32, device=self.device)

    def _stacked_layer(self, states: Mapping[str, Tensor], layer: Layer) -> Tensor:
        if layer.name not in states:
            raise ValueError(f"{layer.name} is missing from the stacked states")
        tensor = tensor_of(states[layer.name])
        if tensor.dim() == 0 or tuple(tensor.shape[1:]) != layer.shape:
            found, expected = tuple(tensor.shape), ", ".join(map(str, ("clients", *layer.shape)))
            raise ValueError(f"stacked {layer.name} has shape {found}, expected ({expected})")
        return _real(tensor).reshape(len(tensor), layer.size).float()

    def _ordered(self, source: Tensors) -> list[Tensor]:
        if self._positional or not isinstance(source, nn.Module | Mapping):
            tensors = [tensor for _, tensor, _ in entries(source)]
            return [tensors[place] for place in self._among(tensors)]
        state = source.state_dict() if isinstance(source, nn.Module) else source
        missing = [name for name in self._names if name not in state]
        if missing:
            named = {bare(str(name)): value for name, value in state.items()}
            wanted = [bare(name) for name in self._names]
            if len(named) == len(state) and len(set(wanted)) == len(wanted) and named.keys() >= set(wanted):
                return [tensor_of(named[name]) for name in wanted]
            raise ValueError(f"{missing[0]} is missing ({len(missing)} of {len(self._names)} layers are)")
        return [tensor_of(state[name]) for name in self._names]

    def _among(self, tensors: Sequence[Tensor]) -> list[int]:
        """Where these layers are among a source's tensors, by order."""
        directed = [place for place, tensor in enumerate(tensors) if has_direction(tensor)]
        if len(directed) == self._given:
            return [directed[index] for index in self._kept]
        if len(tensors) == self._all:  # counters among them have become floats, or are none any more
            return self._places
        if len(directed) == len(self._kept):
            return directed
        raise ValueError(f"{len(directed)} arrays of floats, the model of the round has {len(self._names)}")

    def names_by_order(self, module: nn.Module) -> dict[str, str] | None:
        """What a module's parameters are called here; None where the layers have names of their own."""
        if not self._positional:
            return None
        parameters = dict(module.named_parameters())
        known = tuple(parameters)
        if known not in self._orders:
            everything = [(name, tensor) for name, tensor, _ in entries(module)]
            self._orders[known] = self._by_order(everything) or self._by_order(list(parameters.items()))
        return self._orders[known]

    def _by_order(self, named: Sequence[tuple[str, Tensor]]) -> dict[str, str]:
        """Nothing where they do not fit."""
        try:
            chosen = [named[place] for place in self._among([tensor for _, tensor in named])]
        except ValueError:
            return {}
        pairs = list(zip(chosen, self.layout.layers, strict=True))
        if any(tuple(tensor.shape) != layer.shape for (_, tensor), layer in pairs):
            return {}
        return {name: layer.name for (name, _), layer in pairs}

    def fingerprint(self, row: Tensor) -> str:
        """A short hash by which the server and its clients can tell that they hold the same model."""
        digest = hashlib.blake2b(digest_size=8)
        if row.is_cpu:  # numpy's slices cost a tenth of torch's
            values = row.detach().numpy()
            for part in self._fingerprinted:
                digest.update(np.ascontiguousarray(values[part]).data)
        else:
            for part in self._fingerprinted:
                digest.update(row[part].detach().cpu().contiguous().numpy().data)
        return digest.hexdigest()

    @functools.cached_property
    def _fingerprinted(self) -> list[slice]:
        """The values that a fingerprint is of: all of a small model, some of each layer of a large one."""
        if all(layer.size < 2 * FINGERPRINT_VALUES for layer in self.layout.layers):
            return [slice(0, self.size)]
        ends = list(accumulate(layer.size for layer in self.layout.layers))
        sizes = [layer.size for layer in self.layout.layers]
        return [
            slice(end - size, end, max(1, size // FINGERPRINT_VALUES)) for end, size in zip(ends, sizes, strict=True)
        ]


def _real(tensor: Tensor) -> Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _layer(name: str, tensor: Tensor, trainable: bool | None) -> Layer:
    size = tensor.numel() * (2 if tensor.is_complex() else 1)
    return Layer(name, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), size, trainable)


def _unit_layer(layers: Sequence[Layer]) -> tuple[int | None, int]:
    """The last matrix: its rows are the output units, and a label's trouble shows in its row."""
    for index in range(len(layers) - 1, -1, -1):
        shape = layers[index].shape
        if len(shape) == 2 and layers[index].size and not layers[index].dtype.startswith("complex"):
            return index, min(shape[0], MAX_UNITS)
    return None, 0
