"""What codecs would have sent: kept updates, encoded again. Part of `fedvitals profile`."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from fedvitals.errors import CodecError, FedvitalsError, StoreError
from fedvitals.profile.communication import Encoded
from fedvitals.profile.whatif.model import Tried
from fedvitals.show.words import plural, safe
from fedvitals.store.protocol import RunReader
from fedvitals.vocabulary import Blob

if TYPE_CHECKING:
    from torch import Tensor

    from fedvitals.codecs import Codec

MOST_UPDATES = 32  # evenly taken of all that were kept
ALL = "all"
USUAL = {
    "quantize": "quantize:8",
    "qsgd": "qsgd:16",
    "topk": "topk:0.01",
    "randomk": "randomk:0.01",
    "ternary": "ternary:0.01",
    "lowrank": "lowrank:4",
    "feedback": "feedback(topk:0.01 | quantize:8 | entropy)",
}
KEEP = "record with observe.keep_updates = true, or FEDVITALS_KEEP_UPDATES=1"


def encoded(reader: RunReader, specs: Sequence[str]) -> list[Encoded]:
    """For each codec, between ends that know the layers; FedvitalsError where no updates were kept, or one is none."""
    from fedvitals.codecs import parse

    named = [spec for spec in specs if spec != ALL]
    for spec in named:
        parse(spec)  # refuses before anything is read
    kept = _kept(reader)
    if not kept:
        raise FedvitalsError(f"--codec: run {reader.run().id} has no updates to encode again; {KEEP}")
    updates = _updates(reader, kept, MOST_UPDATES)
    raw = sum(tensor.nbytes for update in updates for tensor in update.values()) / len(updates)
    every = []
    for spec in every_codec(updates) if ALL in specs else ():
        with suppress(CodecError):  # values that it does not take
            every.append(_encoded(spec, updates, raw))
    return [_encoded(spec, updates, raw) for spec in named] + sorted(every, key=lambda one: one.wire_bytes)


def every_codec(updates: Sequence[Mapping[str, Tensor]]) -> list[str]:
    """Each that is registered, with a usual argument where it needs one; others of which none is known are left out."""
    from fedvitals.codecs import names, parse
    from fedvitals.train.space import UP_STEPS

    root = max((_root_mean_square(update) for update in updates), default=0.0) or 1.0
    usual = USUAL | {"grid": f"grid:{UP_STEPS * root:.0e}", "threshold": f"threshold:{root:.0e}"}
    found = []
    for name in names():
        with suppress(CodecError):
            parse(usual.get(name, name))
            found.append(usual.get(name, name))
    return found


def _root_mean_square(update: Mapping[str, Tensor]) -> float:
    values = [tensor.double() for tensor in update.values() if tensor.is_floating_point()]
    squares = sum(float((one * one).sum()) for one in values)
    root = (squares / max(sum(one.numel() for one in values), 1)) ** 0.5
    return root if math.isfinite(root) else 0.0


def _encoded(spec: str, updates: Sequence[Mapping[str, Tensor]], raw: float) -> Encoded:
    from fedvitals.codecs import agreed, parse

    once = _tried(agreed(parse(spec), updates[0]), updates)
    return Encoded(spec, len(updates), raw, once.bytes, raw / max(once.bytes, 1.0), raw / max(once.seconds, 1e-9))


def tried(reader: RunReader, specs: Sequence[str], most: int = MOST_UPDATES) -> dict[str, Tried]:
    """What codecs make of an update of the run between ends that know its layers; nothing where none were kept, one
    is damaged, or they came through a codec already."""
    kept = _kept(reader)
    if not kept or came_through(reader) is not None:
        return {}
    from fedvitals.codecs import agreed, parse

    try:
        updates = _updates(reader, kept, most)
    except StoreError:
        return {}
    results = {}
    for spec in specs:
        with suppress(CodecError):  # values that it does not take, or layers that are not always there
            results[spec] = _tried(agreed(parse(spec), updates[0]), updates)
    return results


def kept_line(reader: RunReader) -> str | None:
    """What may be asked about codecs, and of which updates; None where none were kept."""
    kept = len(_kept(reader))
    if not kept:
        return None
    through = came_through(reader)
    after = f", after {safe(through)}: another codec gets what that one left" if through else ""
    return f"{plural(kept, 'update')} kept{after} (--codec all tells what each codec would have sent)"


def came_through(reader: RunReader) -> str | None:
    """The codec that the run's updates came through already: others are tried on what it left."""
    codec = reader.run().config.get("codec")
    up = codec.get("up", "identity") if isinstance(codec, Mapping) else "identity"
    return None if up == "identity" else str(up)


def _kept(reader: RunReader) -> list[Blob]:
    return [one for one in reader.blobs() if one.kind == "update"]


def _updates(reader: RunReader, kept: Sequence[Blob], most: int) -> list[dict[str, Tensor]]:
    """Evenly taken of all; their layers in order, for they are read in any."""
    return [dict(sorted(_tensors(reader, one).items())) for one in kept[:: -(-len(kept) // most)]]


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
