"""Arrays of statistics and sketches -> rows and raw bytes -> the same arrays, with the shapes that the layout says.

Little-endian bytes, except for the numbers of the kept steps, which follow a few simple patterns.
"""

from __future__ import annotations

import functools
import json
import math
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from fedvitals.errors import StoreError
from fedvitals.store.plain import to_json
from fedvitals.vocabulary import STATISTICS, Layer, Layout, ModelBlock, StepBlock, UpdateBlock

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_BLOCK_ROWS = 4096
MAX_KEPT_STEPS = 4096
UNIT_BUCKETS = 8
_MOST = 1 << 62
Row = Sequence[Any]
Read = Callable[[int, int], bytes]  # from a place, so many bytes
Value = TypeVar("Value", str, int)


def layout_row(layout: Layout) -> tuple[Any, ...]:
    layers = [[layer.name, list(layer.shape), layer.dtype, layer.size, layer.trainable] for layer in layout.layers]
    return layout.id, to_json(layers), to_json(layout.sketch_buckets), layout.unit_layer, layout.units


def layout_from(row: Row) -> Layout:
    number, layers, buckets, unit_layer, units = row
    try:
        known = tuple(
            Layer(name, tuple(map(int, shape)), dtype, size, trainable)
            for name, shape, dtype, size, trainable in json.loads(layers)
        )
        return Layout(number, known, tuple(map(int, json.loads(buckets))), unit_layer, units)
    except (ValueError, TypeError, RecursionError) as error:
        raise StoreError(f"layout {number} is damaged ({error}): restore the run from a copy") from error


def update_parts(block: UpdateBlock, layout: Layout) -> tuple[tuple[Any, ...], list[NDArray[Any]]]:
    """The row, and the arrays that go beside it. Refuses arrays that do not have the shapes the layout says: they
    could not be read back."""
    rows = len(block.stats)
    kept = 0 if block.losses is None else block.losses.shape[-1]
    arrays: list[NDArray[Any]] = []
    present = 0
    for bit, (name, (dtype, shape)) in enumerate(update_shapes(layout, rows, kept).items()):
        array = getattr(block, name)
        if array is not None:
            arrays.append(_fitting(array, dtype, shape, name))
            present |= 1 << bit
    steps = None if block.loss_steps is None else _packed_steps(block.loss_steps, (rows, kept))
    return (block.id, block.round, block.layout, rows, kept, present, steps), arrays


def update_shapes(layout: Layout, rows: int, kept: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Type and shape of each array of an UpdateBlock, but for `loss_steps`."""
    return _update_shapes(len(layout.layers), sum(layout.sketch_buckets), layout.units, rows, kept)


@functools.lru_cache(maxsize=64)
def _update_shapes(
    layers: int, buckets: int, units: int, rows: int, kept: int
) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {
        "stats": ("<f4", (rows, layers, len(STATISTICS))),
        "nonfinite": ("<u4", (rows, layers)),
        "losses": ("<f4", (rows, kept)),
        "sketches": ("<f2", (rows, buckets)),
        "unit_norms": ("<f2", (rows, units)),
        "unit_sums": ("<f2", (rows, units)),
        "unit_sketches": ("|i1", (rows, units, UNIT_BUCKETS)),
    }


def update_from(row: Row, layout: Layout, read: Read) -> UpdateBlock:
    number, round_number, layout_id, rows, kept, present, steps, place = row
    where = f"statistics block {number}"
    if not (0 <= rows <= MAX_BLOCK_ROWS and 0 <= kept <= MAX_KEPT_STEPS and present & 1):
        raise _damaged(where)
    shapes = list(update_shapes(layout, rows, kept).items())
    there = {name: shape for bit, (name, shape) in enumerate(shapes) if present >> bit & 1}
    data = read(place, sum(_bytes_of(*shape) for shape in there.values()))
    arrays: dict[str, Any] = {}
    offset = 0
    for name, (dtype, shape) in there.items():
        size = _bytes_of(dtype, shape)
        arrays[name] = _unpacked(data[offset : offset + size], dtype, shape, where)
        offset += size
    known = None if steps is None else _unpacked_steps(steps, (rows, kept), where)
    return UpdateBlock(number, round_number, layout_id, loss_steps=known, **arrays)


def model_row(block: ModelBlock, layout: Layout) -> tuple[Any, ...]:
    layers = len(layout.layers)
    stats = _fitting(block.stats, "<f4", (layers, len(STATISTICS)), "stats").tobytes()
    bad = None if block.nonfinite is None else _fitting(block.nonfinite, "<u4", (layers,), "nonfinite").tobytes()
    drifts = struct.pack("<d", block.drift_first), struct.pack("<d", block.drift_last)  # NaN stays NaN as bytes
    return block.version, block.round, block.layout, stats, bad, *drifts, block.fingerprint


def model_from(row: Row, layout: Layout) -> ModelBlock:
    version, round_number, layout_id, stats, nonfinite, first, last, fingerprint = row
    where, layers = f"statistics of model version {version}", len(layout.layers)
    if len(first) != 8 or len(last) != 8:
        raise _damaged(where)
    return ModelBlock(
        version,
        round_number,
        layout_id,
        _unpacked(stats, "<f4", (layers, len(STATISTICS)), where),
        _unpacked(nonfinite, "<u4", (layers,), where),
        struct.unpack("<d", first)[0],
        struct.unpack("<d", last)[0],
        fingerprint,
    )


def step_parts(block: StepBlock, layout: Layout) -> tuple[tuple[Any, ...], list[NDArray[Any]]]:
    rows, _, fields = block.stats.shape
    if not len(block.clients) == len(block.attempts) == len(block.steps) == rows:
        raise StoreError(f"StepBlock of round {block.round} has {rows} rows, but not as many clients and steps")
    names = _listed(block.clients, str), _listed(block.attempts, int), _listed(block.steps, int)
    stats = _fitting(block.stats, "<f4", (rows, len(layout.layers), fields), "stats")
    return (block.round, block.layout, rows, fields, *names), [stats]


def _listed(values: Sequence[Any], kind: type) -> str:
    """As JSON; without looking at each where all are of the kind that they should be."""
    if kind is int and values and type(values[0]) is int and values.count(values[0]) == len(values):
        return _one_for_all(values[0], len(values)) if -_MOST < values[0] < _MOST else to_json(values)
    if set(map(type, values)) == {kind} and (kind is str or -_MOST < min(values) <= max(values) < _MOST):
        return _dumped(tuple(values))
    return to_json(values)


def _one_for_all(value: int, count: int) -> str:
    return "[" + (f"{value}," * count)[:-1] + "]"


@functools.lru_cache(maxsize=64)
def _dumped(values: tuple[Any, ...]) -> str:
    """The same clients mostly take the same steps, round after round."""
    return json.dumps(values, separators=(",", ":"))


def step_from(row: Row, layout: Layout, read: Read) -> StepBlock:
    round_number, layout_id, rows, fields, clients, attempts, steps, place = row
    where = f"gradient statistics of round {round_number}"
    if not (0 <= rows <= MAX_BLOCK_ROWS and 0 < fields <= len(STATISTICS)):
        raise _damaged(where)
    shape = (rows, len(layout.layers), fields)
    return StepBlock(
        round_number,
        layout_id,
        _values(clients, str, rows, where),
        _values(attempts, int, rows, where),
        _values(steps, int, rows, where),
        _unpacked(read(place, _bytes_of("<f4", shape)), "<f4", shape, where),
    )


def _values(text: str, kind: type[Value], rows: int, where: str) -> tuple[Value, ...]:
    try:
        values = tuple(json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        raise _damaged(where) from error
    if len(values) != rows or not all(isinstance(value, kind) for value in values):
        raise _damaged(where)
    return values


def _fitting(array: NDArray[Any], dtype: str, shape: tuple[int, ...], name: str) -> NDArray[Any]:
    """The array, contiguous and of this type; StoreError unless it has this shape."""
    import numpy as np

    if array.shape != shape:
        raise StoreError(f"{name} has the shape {array.shape}, the layout says {shape}")
    if array.dtype.str == dtype and array.flags.c_contiguous:
        return array
    return np.ascontiguousarray(array, dtype=dtype)


def _bytes_of(dtype: str, shape: tuple[int, ...]) -> int:
    return int(dtype[-1]) * math.prod(shape)


def _unpacked(data: bytes | None, dtype: str, shape: tuple[int, ...], where: str) -> Any:
    import numpy as np

    if data is None:
        return None
    if len(data) != _bytes_of(dtype, shape):
        raise _damaged(where)
    return np.frombuffer(data, dtype=dtype).reshape(shape)


def _packed_steps(steps: NDArray[Any], shape: tuple[int, ...]) -> bytes:
    """Most often all rows are alike, or each counts up to its own length: then a row, or the lengths, say it all."""
    import numpy as np

    if steps.shape != shape:
        raise StoreError(f"loss_steps has the shape {steps.shape}, losses say {shape}")
    steps = steps.astype("<i4", copy=False)
    if len(steps) and (steps.strides[0] == 0 or (steps == steps[0]).all()):
        return b"=" + bytes(steps[0].data)
    lengths = (steps >= 0).sum(axis=1, dtype="<i4")
    if (steps == _counted(lengths, shape[1])).all():
        return b"n" + bytes(lengths.data)
    differences = steps.copy()
    np.subtract(steps[:, 1:], steps[:, :-1], out=differences[:, 1:])  # an overflow is undone by the sum
    return b"z" + zlib.compress(differences.tobytes(), 1)


def _counted(lengths: NDArray[Any], width: int) -> NDArray[Any]:
    import numpy as np

    steps = np.arange(width, dtype=np.int32)
    return np.where(steps < lengths[:, None], steps, np.int32(-1))


def _unpacked_steps(data: bytes, shape: tuple[int, int], where: str) -> Any:
    import numpy as np

    rows, width = shape
    how, body = data[:1], data[1:]
    if how == b"=":
        return np.broadcast_to(_unpacked(body, "<i4", (width,), where), shape)
    if how == b"n":
        return _counted(_unpacked(body, "<i4", (rows,), where), width)
    if how != b"z":
        raise _damaged(where)
    try:
        raw = zlib.decompressobj().decompress(
            body, 4 * rows * width + 1
        )  # one more than there may be: no bomb goes off
    except zlib.error as error:
        raise _damaged(where) from error
    return np.cumsum(_unpacked(raw, "<i4", shape, where), axis=1, dtype=np.int32)


def _damaged(where: str) -> StoreError:
    return StoreError(f"the {where} is damaged: restore the run from a copy")
