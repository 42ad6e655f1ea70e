"""Kept updates of a run, encoded again: what a codec makes of them. For the what-if of pages and of commands."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from fedvitals.errors import CodecError, StoreError
from fedvitals.profile.whatif.model import Tried
from fedvitals.store.protocol import RunReader
from fedvitals.vocabulary import Blob

if TYPE_CHECKING:
    from torch import Tensor

    from fedvitals.codecs import Codec

MOST_UPDATES = 32  # evenly taken of all that were kept
MOST_TRIED = 4  # kept updates that codecs are tried on where nobody asked


def tried(reader: RunReader, specs: Sequence[str], most: int = MOST_UPDATES) -> dict[str, Tried]:
    """What codecs make of an update of the run between ends that know its layers; nothing where none were kept, one
    is damaged, they came through a codec already, or there is no torch."""
    kept = kept_updates(reader)
    if not kept or came_through(reader) is not None:
        return {}
    try:
        from fedvitals.codecs import agreed, parse

        updates = read_updates(reader, kept, most)
    except (StoreError, ImportError):
        return {}
    results = {}
    for spec in specs:
        with suppress(CodecError):  # values that it does not take, or layers that are not always there
            results[spec] = once_tried(agreed(parse(spec), updates[0]), updates)
    return results


def came_through(reader: RunReader) -> str | None:
    """The codec that the run's updates came through already: others are tried on what it left."""
    codec = reader.run().config.get("codec")
    up = codec.get("up", "identity") if isinstance(codec, Mapping) else "identity"
    return None if up == "identity" else str(up)


def kept_updates(reader: RunReader) -> list[Blob]:
    return [one for one in reader.blobs() if one.kind == "update"]


def read_updates(reader: RunReader, kept: Sequence[Blob], most: int) -> list[dict[str, Tensor]]:
    """Evenly taken of all; their layers in order, for they are read in any."""
    return [dict(sorted(_tensors(reader, one).items())) for one in kept[:: -(-len(kept) // most)]]


def once_tried(codec: Codec, updates: Sequence[Mapping[str, Tensor]]) -> Tried:
    from fedvitals.codecs import Memory

    memory = Memory(codec)
    memory.encode("", updates[0])  # warms up
    began = time.perf_counter()
    sizes = [len(memory.encode(str(number), update).data) for number, update in enumerate(updates)]
    return Tried(sum(sizes) / len(sizes), (time.perf_counter() - began) / len(sizes))


def _tensors(reader: RunReader, blob: Blob) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        tensors: dict[str, Tensor] = load(reader.blob(blob.name))
        return tensors
    except SafetensorError as error:
        raise StoreError(f"the update {blob.name[:12]} is damaged ({error}): restore the run from a copy") from error
