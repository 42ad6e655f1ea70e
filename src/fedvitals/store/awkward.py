"""Records with every value a field may hold, the awkward ones above all: for testing a store."""

from __future__ import annotations

import math
from types import NoneType
from typing import Any, get_args, get_type_hints

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedvitals.vocabulary import (
    STATISTICS,
    Layer,
    Layout,
    ModelBlock,
    Participations,
    Run,
    Status,
    StepBlock,
    UpdateBlock,
)

INTEGERS = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 100)
FLOATS = st.floats() | st.sampled_from((0.0, math.nan, math.inf, -math.inf, 1e-310, 0.1, 1.5))
TEXTS = st.text(max_size=20) | st.sampled_from(
    ("", "\x00", "a\x00b", "né", "名前", "🦜", "'; DROP TABLE run; --", '{"a": 1}')
)
_BY_TYPE: dict[object, st.SearchStrategy[Any]] = {int: INTEGERS, float: FLOATS, str: TEXTS, NoneType: st.none()}
_NAMES = st.from_regex(r"[abXY09_][abXY09._-]{0,19}", fullmatch=True).filter(lambda name: ".." not in name)
_LEAVES = st.none() | st.booleans() | st.integers() | FLOATS | TEXTS
_DOCUMENTS = st.dictionaries(
    TEXTS, st.recursive(_LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3))
)


def records(kind: Any) -> st.SearchStrategy[Any]:
    """Any record of a named-tuple kind."""
    hints = get_type_hints(kind)
    fields = [st.one_of([_BY_TYPE[option] for option in get_args(hint) or (hint,)]) for hint in hints.values()]
    return st.tuples(*fields).map(kind._make)


def runs() -> st.SearchStrategy[Run]:
    """A run that has ended, with any configuration."""
    return st.builds(
        Run,
        id=_NAMES.filter(lambda name: name != "last"),
        name=_NAMES,
        status=st.sampled_from((Status.FINISHED, Status.FAILED)),
        started_unix_ns=st.integers(0, 1 << 62),
        ended_ns=st.none() | st.integers(0, 1 << 62),
        config=_DOCUMENTS,
        environment=_DOCUMENTS,
        health=_DOCUMENTS,
    )


@st.composite
def layouts(draw: st.DrawFn, number: int = 1) -> Layout:
    layers = draw(
        st.lists(
            st.builds(
                Layer,
                name=TEXTS,
                shape=st.lists(st.integers(0, 1 << 40), max_size=4).map(tuple),
                dtype=TEXTS,
                size=st.integers(0, 1 << 60),
                trainable=st.sampled_from((None, True, False)),
            ),
            min_size=1,
            max_size=4,
        )
    )
    buckets = draw(st.just(()) | st.tuples(*[st.integers(0, 5) for _ in layers]))
    unit_layer = draw(st.none() | st.integers(0, len(layers) - 1))
    return Layout(number, tuple(layers), buckets, unit_layer, 0 if unit_layer is None else draw(st.integers(0, 3)))


def arrays(shape: tuple[int, ...], dtype: str) -> st.SearchStrategy[NDArray[Any]]:
    """Any bits: NaN with a payload, infinities, subnormal numbers."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return st.binary(min_size=size, max_size=size).map(lambda data: np.frombuffer(data, dtype=dtype).reshape(shape))


@st.composite
def update_blocks(draw: st.DrawFn, layout: Layout, number: int) -> UpdateBlock:
    rows, kept = draw(st.integers(1, 4)), draw(st.integers(0, 3))
    layers, units = len(layout.layers), layout.units

    def maybe(shape: tuple[int, ...], dtype: str) -> Any:
        return draw(st.none() | arrays(shape, dtype))

    losses = maybe((rows, kept), "float32")
    return UpdateBlock(
        number,
        draw(INTEGERS),
        layout.id,
        draw(arrays((rows, layers, len(STATISTICS)), "float32")),
        maybe((rows, layers), "uint32"),
        maybe((rows, sum(layout.sketch_buckets)), "float16"),
        maybe((rows, units), "float16"),
        maybe((rows, units), "float16"),
        maybe((rows, units, 8), "int8"),
        losses,
        None if losses is None else maybe((rows, kept), "int32"),
    )


@st.composite
def model_blocks(draw: st.DrawFn, layout: Layout, version: int) -> ModelBlock:
    layers = len(layout.layers)
    return ModelBlock(
        version,
        draw(INTEGERS),
        layout.id,
        draw(arrays((layers, len(STATISTICS)), "float32")),
        draw(st.none() | arrays((layers,), "uint32")),
        draw(FLOATS),
        draw(FLOATS),
        draw(TEXTS),
    )


@st.composite
def step_blocks(draw: st.DrawFn, layout: Layout) -> StepBlock:
    rows, fields = draw(st.integers(1, 4)), draw(st.sampled_from((1, len(STATISTICS))))
    some = draw(st.tuples(*[st.tuples(TEXTS, INTEGERS, INTEGERS) for _ in range(rows)]))
    clients, attempts, steps = zip(*some, strict=True)
    stats = draw(arrays((rows, len(layout.layers), fields), "float32"))
    return StepBlock(draw(INTEGERS), layout.id, clients, attempts, steps, stats)


@st.composite
def cohorts(draw: st.DrawFn, attempt: int) -> Participations:
    """Of clients that nobody else has in this attempt; columns as arrays, lists with holes, or one value for all."""
    count, whole, real = draw(st.integers(1, 90)), draw(INTEGERS), draw(FLOATS)
    machine = draw(arrays((count,), "int64")), draw(arrays((count,), "float64"))
    columns: dict[str, Any] = {
        "client": [str(number) for number in range(count)],
        "attempt": [attempt] * count,
        "round": draw(st.integers(0, 3) | INTEGERS),
        "base_version": draw(st.sampled_from((machine[0], range(count), whole))),
        "outcome": "used",
        "start_ns": draw(st.sampled_from((machine[0], whole))),
        "end_ns": draw(st.sampled_from((list(range(count)), [whole] * count))),
        "samples": draw(st.sampled_from(([None, whole] * count, machine[0], None))),
        "loss": draw(st.sampled_from((machine[1], real, [real] * count))),
        "cosine": draw(st.sampled_from(([None, real] * count, None))),
        "received": draw(st.sampled_from(("a", ["a", "b"] * count, None))),
        "attributed": 1,
    }
    return Participations(count, {name: _short(column, count) for name, column in columns.items()})


def _short(column: Any, count: int) -> Any:
    return column[:count] if isinstance(column, list) else column


def same(one: Any, other: Any) -> bool:
    """Equal in value and type, where NaN is equal to NaN and arrays to their bits."""
    if isinstance(one, np.ndarray):
        return (
            isinstance(other, np.ndarray)
            and one.shape == other.shape
            and one.dtype == other.dtype
            and one.tobytes() == other.tobytes()
        )
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if hasattr(one, "__dataclass_fields__"):
        return all(same(getattr(one, name), getattr(other, name)) for name in one.__dataclass_fields__)
    return bool(one == other)
