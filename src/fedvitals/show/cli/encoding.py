"""What codecs would have sent: kept updates, encoded again. Part of `fedvitals profile`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from fedvitals.errors import CodecError, FedvitalsError, StoreError
from fedvitals.profile.communication import Encoded
from fedvitals.profile.whatif.model import Tried
from fedvitals.store.protocol import RunReader
from fedvitals.vocabulary import Blob

if TYPE_CHECKING:
    from torch import Tensor

    from fedvitals.codecs import Codec

MOST_UPDATES = 32  # evenly taken of all that were kept
KEEP = "record with observe.keep_updates = true, or FEDVITALS_KEEP_UPDATES=1"


def encoded(reader: RunReader, specs: Sequence[str]) -> list[Encoded]:
    """For each codec; FedvitalsError where no updates were kept, or a codec is none."""
    from fedvitals.codecs import parse

    codecs = [(spec, parse(spec)) for spec in specs]
    kept = [one for one in reader.blobs() if one.kind == "update"]
    if not kept:
        raise FedvitalsError(f"--codec: run {reader.run().id} has no updates to encode again; {KEEP}")
    updates = [_tensors(reader, one) for one in kept[:: -(-len(kept) // MOST_UPDATES)]]
    raw = sum(tensor.nbytes for update in updates for tensor in update.values())
    found = []
    for spec, codec in codecs:
        began = time.perf_counter()
        sent = sum(len(codec.encode(update)) for update in updates)
        took = max(time.perf_counter() - began, 1e-9)
        count = len(updates)
        found.append(Encoded(spec, count, raw / count, sent / count, raw / max(sent, 1), raw / took))
    return found


def tried(reader: RunReader, specs: Sequence[str], most: int = MOST_UPDATES) -> dict[str, Tried]:
    """What codecs make of an update of the run between ends that know its layers; nothing where none were kept, one
    is damaged, or they came through a codec already."""
    kept = [one for one in reader.blobs() if one.kind == "update"]
    codec = reader.run().config.get("codec")
    if not kept or (isinstance(codec, Mapping) and codec.get("up", "identity") != "identity"):
        return {}
    from fedvitals.codecs import agreed, parse

    try:
        found = [_tensors(reader, one) for one in kept[:: -(-len(kept) // most)]]
    except StoreError:
        return {}
    updates = [dict(sorted(one.items())) for one in found]  # they are read in any order
    results = {}
    for spec in specs:
        with suppress(CodecError):  # values that it does not take, or layers that are not always there
            results[spec] = _tried(agreed(parse(spec), updates[0]), updates)
    return results


def _tried(codec: Codec, updates: Sequence[Mapping[str, Tensor]]) -> Tried:
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
