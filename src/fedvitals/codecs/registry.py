"""Codecs by id: `parse("topk:0.01 | entropy")` for people and jobs, `from_config` for what was kept in a run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from fedvitals.codecs import zstd
from fedvitals.codecs.entropy import Entropy
from fedvitals.codecs.feedback import Feedback
from fedvitals.codecs.frame import pack_known
from fedvitals.codecs.pipeline import Pipeline, layers_of
from fedvitals.codecs.protocol import Codec, Update
from fedvitals.codecs.reductions.lowrank import low_rank
from fedvitals.codecs.reductions.randomk import random_k
from fedvitals.codecs.reductions.scattered import parsed_across
from fedvitals.codecs.reductions.topk import ACROSS, TopK, threshold, top_k
from fedvitals.codecs.roundings import grid, qsgd, uniform
from fedvitals.codecs.roundings.halved import FORMATS, Halved
from fedvitals.codecs.roundings.onebit import OneBit
from fedvitals.codecs.roundings.signs import Signs
from fedvitals.codecs.stages import SLOTS, Stage
from fedvitals.errors import CodecError, nearest

Parts = Mapping[str, Any]  # slots and what fills them
Maker = Callable[[str | None], Codec | Parts]  # from the text after the colon, None without one

MAX_SPEC_LENGTH = 1000
FEEDBACK = "feedback"
FORM = "feedback(topk:0.01 | quantize:8 | entropy, decay=1, momentum=0, bound=0)"

_makers: dict[str, Maker] = {}


def register(id: str, make: Maker) -> None:
    """Add a codec, or a stage of chains. `make(argument)` gives a Codec, which stands alone, or the slots that it
    fills, as in `{"rounding": Mine()}`; it raises CodecError for an argument that makes no sense."""
    if not id.replace("-", "").replace("_", "").isalnum():
        raise CodecError(f"a codec's id is letters, digits, '-' and '_'; found {id!r}")
    if id in _makers or id in ("chain", FEEDBACK, "identity"):
        raise CodecError(f"there is a codec {id!r} already; give yours another id")
    _makers[id] = make


def unregister(id: str) -> None:
    """Take a codec out again, as tests do with theirs."""
    if _makers.pop(id, None) is None:
        raise CodecError(f"there is no codec {id!r}{nearest(id, names())}")


def names() -> list[str]:
    """The ids that `parse` knows."""
    return sorted([*_makers, "identity", FEEDBACK])


def parse(spec: str) -> Codec:
    """The codec that a text names: parts `id` or `id:argument` with `|` between them, perhaps in `feedback(...)`."""
    if len(spec) > MAX_SPEC_LENGTH:
        raise CodecError(f"a codec of {len(spec)} characters; at most {MAX_SPEC_LENGTH}")
    text = spec.strip()
    if text.partition("(")[0].strip() == FEEDBACK:
        return _feedback(text, spec)
    parts = [_part(part.strip(), spec) for part in text.split("|")]
    return _chained([part for part in parts if part[0] != "identity"])


def from_config(config: Mapping[str, Any]) -> Codec:
    """The codec whose `config` this is."""
    name, stages, inner = config.get("id"), config.get("stages"), config.get("inner")
    if name == FEEDBACK and isinstance(inner, Mapping):
        ways = {way: config.get(way) for way in ("decay", "momentum", "bound")}
        if not all(isinstance(value, int | float) for value in ways.values()):
            raise CodecError(f"not the configuration of a codec: {dict(config)!r}; feedback needs {', '.join(ways)}")
        return Feedback(from_config(inner), **{way: float(value or 0.0) for way, value in ways.items()})
    if name == "chain" and isinstance(stages, list):
        return _chained([_of_config(stage) for stage in stages])
    part = _of_config(config)
    return _chained([] if part[0] == "identity" else [part])


def share_of(codec: Codec) -> float:
    """The share of values that a codec sends; CodecError for one that has none to choose."""
    return _shared(codec)[1]


def with_share(codec: Codec, share: float) -> Codec:
    """The same codec for another share of the values."""
    if isinstance(codec, Feedback):
        return replace(codec, inner=with_share(codec.inner, share))
    stage, _ = _shared(codec)
    _, colon, rest = (stage.argument or "").partition(":")
    argument = f"{share:.9g}{colon}{rest}"
    changed = Stage(stage.id, argument, dict(_made(stage.id, argument)))
    assert isinstance(codec, Pipeline)
    return replace(codec, stages=tuple(changed if one is stage else one for one in codec.stages))


def agreed(codec: Codec, like: Update, exact: Collection[str] = ()) -> Codec:
    """The same codec between ends that both know the names and shapes of an update: they are not sent each time. Layers
    that are `exact` go through as they are."""
    if isinstance(codec, Feedback):
        return replace(codec, inner=agreed(codec.inner, like, exact))
    return codec.agreed(layers_of(like), exact) if isinstance(codec, Pipeline) else codec


def plain_bytes(like: Update) -> int:
    """Bytes of such an update as `identity` writes it between ends that know its layers, without writing it."""
    layers = layers_of(like)
    return len(pack_known(layers, b"")) + sum(layer.nbytes for layer in layers)


def is_additive(codec: Codec) -> bool:
    """Whether the sum of what arrives of several messages goes into one message as it is."""
    inner = codec.inner if isinstance(codec, Feedback) else codec
    return isinstance(inner, Pipeline) and inner.additive


def _shared(codec: Codec) -> tuple[Stage, float]:
    inner = codec.inner if isinstance(codec, Feedback) else codec
    for stage in inner.stages if isinstance(inner, Pipeline) else ():
        share = getattr(stage.parts.get("reduction"), "share", None)
        if share is not None:
            return stage, float(share)
    raise CodecError(f"codec {codec.config['id']!r} has no share of values to choose: take topk, randomk or ternary")


def _of_config(config: object) -> tuple[str, str | None]:
    found = config if isinstance(config, Mapping) else {}
    name, argument = found.get("id"), found.get("argument")
    if not isinstance(name, str) or not (argument is None or isinstance(argument, str)):
        raise CodecError(f"not the configuration of a codec: {config!r}; right would be {{'id': 'identity'}}")
    return name, argument


def _part(part: str, spec: str) -> tuple[str, str | None]:
    if not part:
        raise CodecError(f"codec {spec!r} has an empty part; right would be 'identity' or 'first | second'")
    name, colon, argument = part.partition(":")
    if name.partition("(")[0].strip() == FEEDBACK:
        raise CodecError(f"codec {spec!r}: feedback goes around the whole chain, as in {FORM!r}")
    if name.strip() == "identity" and colon:
        raise CodecError(f"codec 'identity' takes no argument, found {argument.strip()!r}")
    return name.strip(), argument.strip() if colon else None


def _chained(parts: list[tuple[str, str | None]]) -> Codec:
    made = [(name, argument, _made(name, argument)) for name, argument in parts]
    whole = [(name, codec) for name, _, codec in made if not isinstance(codec, Mapping)]
    if not whole:
        return Pipeline(tuple(Stage(name, argument, dict(slots)) for name, argument, slots in made))
    if len(made) > 1:
        raise CodecError(f"codec {whole[0][0]!r} writes whole updates: it stands alone, and not in a chain")
    codec: Codec = whole[0][1]
    return codec


def _made(id: str, argument: str | None) -> Any:
    make = _makers.get(id)
    if make is None:
        raise CodecError(f"there is no codec {id!r}{nearest(id, names())}")
    made = make(argument)
    if isinstance(made, Mapping) and not (made and set(made) <= set(SLOTS)):
        raise CodecError(f"codec {id!r} fills {sorted(made)}; a stage fills some of {', '.join(SLOTS)}")
    return made


def _feedback(text: str, spec: str) -> Codec:
    inside = text[len(FEEDBACK) :].strip()
    if not (inside.startswith("(") and inside.endswith(")")):
        raise CodecError(f"codec {spec!r}: feedback goes around the whole chain, as in {FORM!r}")
    chain, *ways = inside[1:-1].split(",")
    named = [_way(way) for way in ways]
    twice = [name for name, _ in named if sum(name == other for other, _ in named) > 1]
    if twice:
        raise CodecError(f"feedback: {twice[0]} is there twice in {spec!r}")
    return Feedback(parse(chain), **dict(named))


def _way(text: str) -> tuple[str, float]:
    name, _, value = (part.strip() for part in text.partition("="))
    try:
        number = float(value)
    except ValueError:
        number = None
    if name not in ("decay", "momentum", "bound") or number is None:
        raise CodecError(f"feedback: {text.strip()!r} is no way of it; right is {FORM!r}")
    return name, number


def _plain(id: str, parts: Callable[[], Parts]) -> None:
    """Register a stage that takes no argument."""

    def make(argument: str | None) -> Parts:
        if argument is not None:
            raise CodecError(f"codec {id!r} takes no argument, found {argument!r}")
        return parts()

    register(id, make)


def _ternary(argument: str | None) -> Parts:
    return {"reduction": TopK(*parsed_across("ternary", argument, ACROSS)), "rounding": Signs()}


for _format in FORMATS:
    _plain(_format, partial(dict, rounding=Halved(_format)))
_plain("onebit", lambda: {"rounding": OneBit()})
_plain("entropy", lambda: {"packing": Entropy()})
register("quantize", lambda argument: {"rounding": uniform.parsed(argument)})
register("grid", lambda argument: {"rounding": grid.parsed(argument)})
register("qsgd", lambda argument: {"rounding": qsgd.parsed(argument)})
register("topk", lambda argument: {"reduction": top_k(argument)})
register("randomk", lambda argument: {"reduction": random_k(argument)})
register("threshold", lambda argument: {"reduction": threshold(argument)})
register("lowrank", lambda argument: {"reduction": low_rank(argument)})
register("ternary", _ternary)
register("zstd", lambda argument: {"squeezing": zstd.parsed(argument)})
