"""A model as bytes to keep: a safetensors file, made later and elsewhere than the copy it is made from."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from safetensors.torch import save
from torch import Tensor

from fedvitals.capture.tensors.layout import FlatRow, Flattener, Source
from fedvitals.capture.tensors.sources import integers


class Snapshot:
    """The floats are a row that nobody writes to again; integer buffers are few, and copied here."""

    def __init__(self, source: Source | None, flattener: Flattener, row: Tensor) -> None:
        self._flattener = flattener
        self._row = row
        self._integers = _integers(source, flattener)
        self.size_bytes = 4 * flattener.size + sum(t.numel() * t.element_size() for t in self._integers.values())

    def to_bytes(self) -> bytes:
        """The whole state, in the model's own types, as a safetensors file."""
        if not self._integers and self._flattener.plain:
            return b"".join((self._flattener.file_header, self._row.cpu().numpy().data))  # copied once
        state = dict(self._integers)
        offset = 0
        row = self._row.cpu()
        for layer in self._flattener.layout.layers:
            values = row[offset : offset + layer.size]
            offset += layer.size
            if layer.dtype.startswith("complex"):
                state[layer.name] = torch.view_as_complex(values.reshape(*layer.shape, 2)).contiguous()
            else:
                state[layer.name] = values.reshape(layer.shape).to(getattr(torch, layer.dtype))
        data: bytes = save(state)
        return data


def _integers(source: Source | None, flattener: Flattener) -> dict[str, Tensor]:
    if isinstance(source, FlatRow):
        return dict(source.integers)
    if isinstance(source, Mapping):
        source = flattener.beside(source)
    return {} if source is None else integers(source)
