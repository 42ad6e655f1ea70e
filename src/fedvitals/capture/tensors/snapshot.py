"""A model as bytes to keep: a safetensors file, made later and elsewhere than the copy it is made from."""

from __future__ import annotations

import torch
from safetensors.torch import save
from torch import Tensor

from fedvitals.capture.tensors.layout import FlatRow, Flattener, Source


class Snapshot:
    """The floats are a row that nobody writes to again; counters and masks are few, and copied here."""

    def __init__(self, source: Source | None, flattener: Flattener, row: Tensor) -> None:
        self._flattener = flattener
        self._row = row
        self._left_out = _left_out(source, flattener)
        self.size_bytes = 4 * flattener.size + sum(t.numel() * t.element_size() for t in self._left_out.values())

    def to_bytes(self) -> bytes:
        """The whole state, in the model's own types, as a safetensors file."""
        if not self._left_out and self._flattener.plain:
            return b"".join((self._flattener.file_header, self._row.cpu().numpy().data))  # copied once
        state = dict(self._left_out)
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


def _left_out(source: Source | None, flattener: Flattener) -> dict[str, Tensor]:
    if isinstance(source, FlatRow):
        return dict(source.integers)
    return {} if source is None else flattener.left_out(source)
