"""Kept updates of a run, encoded again: what a codec makes of them. For the what-if, and for `profile --codec`.

An update is put together as the engine sends it: layers in the model's order, running statistics that go through any
codec as they are, and buffers that count, which no kept update holds, from a kept model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from fedvitals.errors import CodecError, StoreError
from fedvitals.profile.whatif.model import Tried
from fedvitals.store.protocol import RunReader
from fedvitals.vocabulary import Blob

if TYPE_CHECKING:
    from torch import Tensor

MOST_UPDATES = 32  # evenly taken of all that were kept
MOST_TRIED = 4  # kept updates that codecs are tried on where nobody asked


class Updates(NamedTuple):
    """Some of a run, as messages."""

    messages: Sequence[dict[str, Tensor]]
    statistics: frozenset[str]  # layers that codecs leave as they are

    @property
    def raw_bytes(self) -> float:
        """Of one, on average."""
        return sum(tensor.nbytes for one in self.messages for tensor in one.values()) / len(self.messages)


def tried(reader: RunReader, specs: Sequence[str], most: int = MOST_UPDATES) -> dict[str, Tried]:
    """What codecs make of an update of the run between ends that know its layers; nothing where none were kept, one
    is damaged, they came through a codec already, or there is no torch."""
    kept = kept_updates(reader)
    if not kept or came_through(reader) is not None:
        return {}
    try:
        updates = read_updates(reader, kept, most)
    except (StoreError, ImportError):
        return {}
    results = {}
    for spec in specs:
        with suppress(CodecError):  # values that it does not take, or layers that are not always there
            results[spec] = once_tried(spec, updates)
    return results


def came_through(reader: RunReader) -> str | None:
    """The codec that the run's updates came through already: others are tried on what it left."""
    codec = reader.run().config.get("codec")
    up = codec.get("up", "identity") if isinstance(codec, Mapping) else "identity"
    return None if up == "identity" else str(up)


def kept_updates(reader: RunReader) -> list[Blob]:
    return [one for one in reader.blobs() if one.kind == "update"]


def read_updates(reader: RunReader, kept: Sequence[Blob], most: int = MOST_UPDATES) -> Updates:
    """Evenly taken of all."""
    layers = [layer for layout in reader.layouts() for layer in layout.layers]
    order = {layer.name: place for place, layer in enumerate(layers)}
    counted = _counted(reader)
    messages = []
    for one in kept[:: -(-len(kept) // most)]:
        tensors = sorted(_tensors(reader, one).items(), key=lambda item: (order.get(item[0], len(order)), item[0]))
        messages.append({**dict(tensors), **counted})
    still = [layer.name for layer in layers if layer.trainable is False]
    return Updates(messages, frozenset(name for name in still if _moved(messages, name)))


def once_tried(spec: str, updates: Updates, clock: Callable[[], float] = time.perf_counter) -> Tried:
    """Encoded and decoded, each as the first of a client."""
    from fedvitals.codecs import Memory, agreed, parse

    messages, exact = updates
    memory = Memory(agreed(parse(spec), messages[0], exact), exact)
    memory.encode("", messages[0])  # warms up
    began = clock()
    sizes = [len(memory.encode(str(number), one).data) for number, one in enumerate(messages)]
    return Tried(sum(sizes) / len(sizes), (clock() - began) / len(sizes))


def _moved(messages: Iterable[Mapping[str, Tensor]], name: str) -> bool:
    """Running statistics do; what is not trained and never moves is a frozen weight, of which nothing is sent apart."""
    return any(bool(one[name].any()) for one in messages if name in one)


def _counted(reader: RunReader) -> dict[str, Tensor]:
    """Buffers that count, of a model that was kept; nothing where none was."""
    model = next((one for one in reader.blobs() if one.kind == "model"), None)
    found = _tensors(reader, model).items() if model is not None else ()
    return {name: tensor for name, tensor in found if not tensor.is_floating_point() and not tensor.is_complex()}


def _tensors(reader: RunReader, blob: Blob) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        tensors: dict[str, Tensor] = load(reader.blob(blob.name))
        return tensors
    except SafetensorError as error:
        raise StoreError(
            f"the {blob.kind} {blob.name[:12]} is damaged ({error}): restore the run from a copy"
        ) from error
