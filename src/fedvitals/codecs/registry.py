"""Codecs by id: `parse("topk:0.01 | entropy")` for people and jobs, `from_config` for what was kept in a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fedvitals.codecs.chain import Chain
from fedvitals.codecs.halved import FORMATS, Halved
from fedvitals.codecs.identity import Identity
from fedvitals.codecs.protocol import Codec
from fedvitals.codecs.quantize import Quantize
from fedvitals.errors import CodecError, nearest

Maker = Callable[[str | None], Codec]  # from the text after the colon, None without one

MAX_SPEC_LENGTH = 1000
PLANNED = (
    "qsgd",
    "topk",
    "randomk",
    "threshold",
    "ternary",
    "onebit",
    "lowrank",
    "zstd",
    "entropy",
    "feedback",
)

_makers: dict[str, Maker] = {}


def register(id: str, make: Maker) -> None:
    """Add a codec. `make(argument)` raises CodecError for an argument that makes no sense."""
    if not id.replace("-", "").replace("_", "").isalnum():
        raise CodecError(f"a codec's id is letters, digits, '-' and '_'; found {id!r}")
    if id in _makers or id == "chain":
        raise CodecError(f"there is a codec {id!r} already; give yours another id")
    _makers[id] = make


def unregister(id: str) -> None:
    """Take a codec out again, as tests do with theirs."""
    if _makers.pop(id, None) is None:
        raise CodecError(f"there is no codec {id!r}{nearest(id, names())}")


def names() -> list[str]:
    """The ids that `parse` knows."""
    return sorted(_makers)


def parse(spec: str) -> Codec:
    """The codec that a text names: `identity`, or several with `|` between them, each `id` or `id:argument`."""
    if len(spec) > MAX_SPEC_LENGTH:
        raise CodecError(f"a codec of {len(spec)} characters; at most {MAX_SPEC_LENGTH}")
    stages = [_stage(part.strip(), spec) for part in spec.split("|")]
    telling = [stage for stage in stages if not isinstance(stage, Identity)] or stages[:1]
    return telling[0] if len(telling) == 1 else Chain(tuple(telling))


def from_config(config: Mapping[str, Any]) -> Codec:
    """The codec whose `config` this is."""
    name, stages = config.get("id"), config.get("stages")
    if name == "chain" and isinstance(stages, list):
        return Chain(tuple(from_config(stage) for stage in stages))
    argument = config.get("argument")
    if not isinstance(name, str) or not (argument is None or isinstance(argument, str)):
        raise CodecError(f"not the configuration of a codec: {dict(config)!r}; right would be {{'id': 'identity'}}")
    return _made(name, argument)


def _stage(part: str, spec: str) -> Codec:
    if not part:
        raise CodecError(f"codec {spec!r} has an empty part; right would be 'identity' or 'first | second'")
    name, colon, argument = part.partition(":")
    return _made(name.strip(), argument.strip() if colon else None)


def _made(id: str, argument: str | None) -> Codec:
    make = _makers.get(id)
    if make is not None:
        return make(argument)
    if id.partition("(")[0].strip() in PLANNED:
        raise CodecError(f"codec {id!r} is not available in this version; available: {', '.join(names())}")
    raise CodecError(f"there is no codec {id!r}{nearest(id, names())}")


def _plain(id: str, codec: Codec) -> None:
    """Register a codec that takes no argument."""

    def make(argument: str | None) -> Codec:
        if argument is not None:
            raise CodecError(f"codec {id!r} takes no argument, found {argument!r}")
        return codec

    register(id, make)


def _quantize(argument: str | None) -> Codec:
    if argument is None or not (argument.isascii() and argument.isdigit() and len(argument) <= 2):
        raise CodecError(f"codec 'quantize' takes a number of bits, as in 'quantize:8'; found {argument!r}")
    return Quantize(int(argument))


_plain("identity", Identity())
for _format in FORMATS:
    _plain(_format, Halved(_format))
register("quantize", _quantize)
