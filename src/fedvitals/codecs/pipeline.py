"""A chain of stages as one codec: `topk:0.01 | quantize:8 | entropy`. Without any it is `identity`: every dense type,
every bit, NaN and infinities included. Whatever the chain, integers go through as they are.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedvitals.codecs.frame import (
    FREE_BYTES,
    Layer,
    most_claimed,
    pack,
    pack_known,
    require_known,
    unpack,
    unpack_known,
)
from fedvitals.codecs.numbers import Floats, floats_of, raw_bytes, require_dense, shaped, tensor_of, width
from fedvitals.codecs.protocol import Update, require_finite
from fedvitals.codecs.roundings.exact import Exact
from fedvitals.codecs.stages import SLOTS, Packing, Plain, Reduction, Rounding, Stage, Whole
from fedvitals.codecs.streams import Sink, Source, least_bytes
from fedvitals.errors import CodecError

WORDS = {
    "reduction": "choose which values travel",
    "rounding": "round values",
    "packing": "code symbols",
    "squeezing": "squeeze bytes",
}
_ARITHMETIC = 8.0  # roundings of a value's own format on its way, at most
_LONGEST = 8  # times its values' bytes that a message may take before it is squeezed


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The codec that its stages make, in the order in which they are written. Where both ends know the layers they are
    not sent, and those may be told to go through as they are (`agreed`)."""

    stages: tuple[Stage, ...] = ()
    known: tuple[Layer, ...] = field(default=(), compare=False)
    exact: frozenset[str] = field(default=frozenset(), compare=False)

    def __post_init__(self) -> None:
        filled: dict[str, Stage] = {}
        for stage in self.stages:
            for slot in stage.parts:
                _refuse_twice(slot, stage, filled)
            filled |= dict.fromkeys(stage.parts, stage)
        rounding, reduction = self._part("rounding"), self._part("reduction")
        if getattr(rounding, "row", False) and reduction is not None:
            raise CodecError(
                f"codec {filled['rounding'].text!r} has a scale a row, and {filled['reduction'].text!r} leaves no "
                "rows; take one scale a tensor"
            )

    @property
    def config(self) -> dict[str, Any]:
        if len(self.stages) == 1:
            return self.stages[0].config
        if not self.stages:
            return {"id": "identity"}
        return {"id": "chain", "stages": [stage.config for stage in self.stages]}

    @property
    def lossless(self) -> bool:
        return self._part("reduction") is None and self._part("rounding") is None

    @property
    def additive(self) -> bool:
        """Whether the sum of what arrives of several messages goes into one message as it is."""
        return self._part("reduction") is None and getattr(self._rounding, "additive", self.lossless)

    def encode(self, update: Update) -> bytes:
        layers = layers_of(update)
        if not self.lossless:
            require_finite(update)
        sink = self._packing.sink(agreed=bool(self.known))
        for layer in layers:
            if not self._reckoned(layer):
                sink.raw(raw_bytes(layer.name, update[layer.name]), width(layer.dtype))
        self._write(sink, [layer for layer in layers if self._reckoned(layer)], update)
        data = self._framed(layers, sink.finished())
        squeezing = self._part("squeezing")
        message: bytes = data if squeezing is None else squeezing.squeezed(data)
        if not self.known:
            _refuse_unreadable(max(len(data), sum(layer.read_bytes for layer in layers)), message, sink.told)
        return message

    def decode(self, data: bytes) -> dict[str, Tensor]:
        squeezing = self._part("squeezing")
        frame = data if squeezing is None else squeezing.restored(data, self._most(len(data)))
        layers, body = self._unframed(frame, len(data))
        source = self._packing.source(body, math.inf if self.known else len(data))
        found: dict[str, Tensor] = {}
        for layer in layers:
            if not self._reckoned(layer):
                found[layer.name] = tensor_of(layer, source.raw(layer.nbytes, width(layer.dtype)))
        found |= self._read(source, [layer for layer in layers if self._reckoned(layer)])
        source.finish()
        return {layer.name: found[layer.name] for layer in layers}

    def error_bound(self, update: Update) -> float:
        layers = [layer for layer in layers_of(update) if self._reckoned(layer)]
        if not layers:
            return 0.0
        arrays = [floats_of(layer.name, update[layer.name]) for layer in layers]
        kept = self._reduction.reduce(layers, arrays)
        rounded = self._rounding.bounds(layers, [one.values for one in kept])
        bounds = [
            self._reduction.bound(layer, array, one, off) + _own_rounding(layer, array, off)
            for layer, array, one, off in zip(layers, arrays, kept, rounded, strict=True)
        ]
        return max(bounds)

    def agreed(self, layers: Sequence[Layer], exact: Collection[str] = ()) -> Pipeline:
        """This codec between ends that both know these layers, and which go through as they are."""
        return replace(self, known=tuple(layers), exact=self.exact.union(exact))

    def _framed(self, layers: Sequence[Layer], body: bytes) -> bytes:
        if not self.known:
            return pack(layers, body)
        if tuple(layers) != self.known:
            raise CodecError(f"the update has other layers than the {len(self.known)} that were agreed on")
        return pack_known(layers, body)

    def _unframed(self, frame: bytes, sent_bytes: int) -> tuple[Sequence[Layer], memoryview]:
        return (self.known, unpack_known(self.known, frame)) if self.known else unpack(frame, sent_bytes)

    def _most(self, message_bytes: int) -> int:
        """Bytes that a squeezed message may come to: by its length, or by what both ends know of it."""
        known = sum(layer.nbytes for layer in self.known)
        return max(most_claimed(message_bytes), FREE_BYTES + _LONGEST * known)

    def _write(self, sink: Sink, layers: Sequence[Layer], update: Update) -> None:
        kept = self._reduction.reduce(layers, [floats_of(layer.name, update[layer.name]) for layer in layers])
        self._reduction.write(sink, layers, kept)
        self._rounding.write(sink, layers, [one.values for one in kept])

    def _read(self, source: Source, layers: Sequence[Layer]) -> dict[str, Tensor]:
        reduction = self._reduction
        places = reduction.read(source, layers)
        counts = [reduction.count(layer, where) for layer, where in zip(layers, places, strict=True)]
        values = self._rounding.read(source, layers, counts)
        return {
            layer.name: _finite(layer, reduction.restore(layer, where, array))
            for layer, where, array in zip(layers, places, values, strict=True)
        }

    def _reckoned(self, layer: Layer) -> bool:
        """Whether a layer goes through the stages, and not as it is."""
        return layer.dtype.is_floating_point and not self.lossless and layer.name not in self.exact

    def _part(self, slot: str) -> Any:
        return next((stage.parts[slot] for stage in self.stages if slot in stage.parts), None)

    @property
    def _reduction(self) -> Reduction:
        return self._part("reduction") or Whole()

    @property
    def _rounding(self) -> Rounding:
        return self._part("rounding") or Exact()

    @property
    def _packing(self) -> Packing:
        return self._part("packing") or Plain()


def layers_of(update: Update) -> list[Layer]:
    """What an update holds, without its values; CodecError where that cannot be written."""
    return [_layer(name, tensor) for name, tensor in update.items()]


def _layer(name: str, tensor: object) -> Layer:
    if not isinstance(tensor, Tensor):
        raise CodecError(f"layer {name!r} is of type {type(tensor).__name__}; right is a torch.Tensor")
    layer = Layer(name, tensor.dtype, tuple(tensor.shape))
    require_known(layer)
    require_dense(name, tensor)
    return layer


def _refuse_twice(slot: str, stage: Stage, filled: dict[str, Stage]) -> None:
    if slot in filled:
        raise CodecError(f"codecs {filled[slot].text!r} and {stage.text!r} both {WORDS[slot]}: take one of them")
    later = [other for other in filled if SLOTS.index(other) > SLOTS.index(slot)]
    if later:
        before = filled[later[0]]
        order = ", ".join(WORDS[one] for one in SLOTS)
        raise CodecError(f"codec {stage.text!r} cannot come after {before.text!r}: the order is {order}")


def _refuse_unreadable(claimed: int, message: bytes, told: int) -> None:
    """A few bytes that stand for very much, as of a large model of which next to nothing travels."""
    if claimed > most_claimed(len(message)) or least_bytes(told) > len(message):
        raise CodecError(
            f"an update that takes {claimed} bytes to read, in a message of {len(message)}: a receiver refuses that "
            "who does not know the layers; let both ends agree on them with codecs.agreed(codec, update)"
        )


def _own_rounding(layer: Layer, array: Floats, off: float) -> float:
    """What arithmetic in the layer's format, and the nearest value that it holds, add to the error."""
    limits = torch.finfo(layer.dtype)
    largest = float(np.abs(array).max(initial=0.0)) + off
    return _ARITHMETIC * (largest * limits.eps + limits.smallest_normal)


def _finite(layer: Layer, values: Floats) -> Tensor:
    """A layer as it arrived; a lossy codec never sends what is not finite, so a stranger did."""
    if not bool(np.isfinite(values).all()):
        raise CodecError(f"damaged update: layer {layer.name!r} arrives with values that are not finite")
    return shaped(layer, values)
