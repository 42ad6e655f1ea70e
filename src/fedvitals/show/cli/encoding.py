"""What codecs would have sent: kept updates, encoded again. Part of `fedvitals profile`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from fedvitals.errors import CodecError, FedvitalsError
from fedvitals.profile.communication import Encoded
from fedvitals.profile.trying import Updates, came_through, kept_updates, once_tried, read_updates
from fedvitals.show.words import plural, safe
from fedvitals.store.protocol import RunReader

if TYPE_CHECKING:
    from torch import Tensor

ALL = "all"
USUAL = {"feedback": "feedback(topk:0.01 | quantize:8 | entropy)"}
EXAMPLE = re.compile(r"as in '([^']+)'")  # what a codec says that is not given the argument it needs
KEEP = "record with observe.keep_updates = true, or FEDVITALS_KEEP_UPDATES=1"


def encoded(reader: RunReader, specs: Sequence[str]) -> list[Encoded]:
    """For each codec, between ends that know the layers; FedvitalsError where no updates were kept, or one is none."""
    from fedvitals.codecs import parse

    named = [spec for spec in specs if spec != ALL]
    for spec in named:
        parse(spec)  # refuses before anything is read
    kept = kept_updates(reader)
    if not kept:
        raise FedvitalsError(f"--codec: run {reader.run().id} has no updates to encode again; {KEEP}")
    updates = read_updates(reader, kept)
    every = []
    for spec in every_codec(updates.messages) if ALL in specs else ():
        with suppress(CodecError):  # values that it does not take
            every.append(_encoded(spec, updates))
    return [_encoded(spec, updates) for spec in named] + sorted(every, key=lambda one: one.wire_bytes)


def every_codec(updates: Sequence[Mapping[str, Tensor]]) -> list[str]:
    """Each that is registered, where it needs an argument with that of its own example; without one it is left out."""
    from fedvitals.codecs import names
    from fedvitals.train.space import UP_STEPS

    root = max((_root_mean_square(update) for update in updates), default=0.0) or 1.0
    usual = USUAL | {"grid": f"grid:{UP_STEPS * root:.0e}", "threshold": f"threshold:{root:.0e}"}
    return [spec for name in names() if (spec := _made(usual.get(name, name))) is not None]


def _made(spec: str) -> str | None:
    """The spec, or the example in its refusal."""
    from fedvitals.codecs import parse

    try:
        parse(spec)
    except CodecError as error:
        example = EXAMPLE.search(str(error))
        return example.group(1) if example else None
    return spec


def _root_mean_square(update: Mapping[str, Tensor]) -> float:
    values = [tensor.double() for tensor in update.values() if tensor.is_floating_point()]
    squares = sum(float((one * one).sum()) for one in values)
    root = (squares / max(sum(one.numel() for one in values), 1)) ** 0.5
    return root if math.isfinite(root) else 0.0


def _encoded(spec: str, updates: Updates) -> Encoded:
    once, raw, count = once_tried(spec, updates), updates.raw_bytes, len(updates.messages)
    return Encoded(spec, count, raw, once.bytes, raw / max(once.bytes, 1.0), raw / max(once.seconds, 1e-9))


def kept_line(reader: RunReader) -> str | None:
    """What may be asked about codecs, and of which updates; None where none were kept."""
    kept = len(kept_updates(reader))
    if not kept:
        return None
    through = came_through(reader)
    after = f", after {safe(through)}: another codec gets what that one left" if through else ""
    return f"{plural(kept, 'update')} kept{after} (--codec all tells what each codec would have sent)"
