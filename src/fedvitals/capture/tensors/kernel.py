"""The compiled kernel (kernel.c), where the installation has one: found, checked and called through ctypes.

It is compiled when fedvitals is installed and a C compiler is there. Without it statistics.py does the same by torch
operations, several times slower; `in_use` says which, and the run's environment shows it.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedvitals.capture.tensors.sketch import UNIT_BUCKETS, Sketcher, unit_sketch_scale
from fedvitals.vocabulary import STATISTICS, Layout

VERSION = 4
LIBRARY = Path(__file__).with_name("_kernel.so")
SHORT = 1 << 16  # values, whose norms take some microseconds

_number, _address = ctypes.c_int64, ctypes.c_void_p


class _Plan(ctypes.Structure):
    _fields_ = (
        *((name, _number) for name in ("layers", "size", "buckets", "units")),
        *((name, _number) for name in ("unit_start", "unit_columns")),
        *((name, _address) for name in ("layer_sizes", "layer_buckets", "signs", "unit_projection")),
        ("unit_step", ctypes.c_float),
    )


OUTPUTS = ("stats", "norms", "nonfinite", "cosines", "total", "sketches", "unit_norms", "unit_sums", "unit_sketches")


class _Found(ctypes.Structure):
    _fields_ = tuple((name, _address) for name in OUTPUTS)


class Plan:
    """What the kernel has to know of a layout and its sketcher; keeps alive what its structure points to."""

    def __init__(self, layout: Layout, sketcher: Sketcher | None) -> None:
        sizes = np.array([layer.size for layer in layout.layers], np.int64)
        self.layers, self.size = len(sizes), int(sizes.sum())
        self.buckets = self.units = 0
        self._kept: list[Any] = [sizes]
        self.structure = _Plan(layers=self.layers, size=self.size, layer_sizes=sizes.ctypes.data)
        self.address = ctypes.byref(self.structure)
        if sketcher is not None:
            self._add_sketcher(layout, sketcher)

    def _add_sketcher(self, layout: Layout, sketcher: Sketcher) -> None:
        buckets, signs = np.array(layout.sketch_buckets, np.int64), sketcher.signs
        plan, self.buckets = self.structure, sketcher.buckets
        plan.buckets, plan.layer_buckets, plan.signs = sketcher.buckets, buckets.ctypes.data, signs.data_ptr()
        self._kept += [buckets, signs]
        if layout.unit_layer is not None:
            projection = np.ascontiguousarray(sketcher.unit_projection.numpy()[1:].T)
            plan.units = self.units = layout.units
            plan.unit_start = int(sum(layer.size for layer in layout.layers[: layout.unit_layer]))
            plan.unit_columns, plan.unit_projection = len(projection), projection.ctypes.data
            plan.unit_step = unit_sketch_scale()
            self._kept.append(projection)


@functools.cache
def library() -> Any:
    """The compiled kernel; None where there is none, or one of another version."""
    try:
        found = ctypes.CDLL(str(LIBRARY))
        found.fedvitals_version.restype = found.fedvitals_summarise.restype = _number
        found.fedvitals_norms.restype = None
        found.fedvitals_summarise.argtypes = (_address, _address, _address, _number, _address)
        found.fedvitals_norms.argtypes = (_address, _address, _number, _address)
        _declare_pieces(found)
        return found if found.fedvitals_version() == VERSION else None
    except (OSError, AttributeError):
        return None


def in_use() -> bool:
    return library() is not None


def takes(rows: Sequence[Tensor]) -> bool:
    """Whether the kernel can be given these."""
    return library() is not None and all(part.is_cpu and part.dtype == torch.float32 for part in rows)


def takes_row(row: Tensor) -> bool:
    """The same of a single row, value by value: asked several times a client."""
    return library() is not None and row.is_cpu and row.dtype is torch.float32 and row.is_contiguous()


@functools.lru_cache(maxsize=16)
def _plain_plan(layout: Layout) -> Plan:
    return Plan(layout, None)


def _plan_of(layout: Layout, sketcher: Sketcher | None) -> Plan:
    if sketcher is None:
        return _plain_plan(layout)
    if sketcher.plan is None:
        sketcher.plan = Plan(layout, sketcher)
    return sketcher.plan  # type: ignore[no-any-return]  # sketch.py knows nothing of this module


class _Pointers:
    """Where each row is. Holds on to rows that had to be copied to lie value by value."""

    def __init__(self, rows: Sequence[Tensor]) -> None:
        self._rows = [part if part.stride(-1) == 1 or part.shape[-1] <= 1 else part.contiguous() for part in rows]
        if all(len(part) == 1 for part in rows):
            self.places = np.array([part.data_ptr() for part in self._rows], np.int64)
        else:
            self.places = np.concatenate([_places(part) for part in self._rows])

    def __len__(self) -> int:
        return len(self.places)


def _places(part: Tensor) -> np.ndarray:
    return part.data_ptr() + 4 * part.stride(0) * np.arange(len(part), dtype=np.int64)


Room = Callable[[int], np.ndarray | None]  # so many bytes to put something into, where there are any


def summarised(
    rows: Sequence[Tensor],
    layout: Layout,
    sketcher: Sketcher | None,
    groups: Sequence[int] | None,
    room: Room | None = None,
) -> dict[str, Any]:
    """The fields of a Summary; they lie in one piece, in `room` where it has any."""
    plan, pointers = _plan_of(layout, sketcher), _Pointers(rows)
    count = len(pointers)
    found, addresses = _laid_out(_shapes(plan, count, compared=groups is not None, sketched=sketcher is not None), room)
    single = {name: torch.empty(found[name].shape) for name in _ROUNDED if name in found}
    addresses |= {name: tensor.data_ptr() for name, tensor in single.items()}
    total = torch.empty(plan.size if groups is not None else 0)
    sizes = (_number * (1 if groups is None else len(groups)))(*([count] if groups is None else groups))
    bad = library().fedvitals_summarise(
        plan.address,
        pointers.places.ctypes.data,
        sizes,
        len(sizes),
        ctypes.byref(_Found(total=total.data_ptr(), **addresses)),
    )
    for name, tensor in single.items():  # torch converts much faster than numpy
        torch.from_numpy(found[name]).copy_(tensor)
    return {"cosines": None} | found | ({} if bad else {"nonfinite": None})


_ROUNDED = ("sketches", "unit_norms", "unit_sums")  # computed in float32, kept in float16


def _shapes(plan: Plan, count: int, *, compared: bool, sketched: bool) -> dict[str, tuple[type, tuple[int, ...]]]:
    """What is found out, largest numbers first: so each lies where its kind may."""
    shapes: dict[str, tuple[type, tuple[int, ...]]] = {
        "norms": (np.float64, (count,)),
        "stats": (np.float32, (count, plan.layers, len(STATISTICS))),
        "nonfinite": (np.uint32, (count, plan.layers)),
    }
    if compared:
        shapes["cosines"] = np.float32, (count,)
    if sketched:
        shapes["sketches"] = np.float16, (count, plan.buckets)
    if sketched and plan.units:
        shapes |= dict.fromkeys(("unit_norms", "unit_sums"), (np.float16, (count, plan.units)))
        shapes["unit_sketches"] = np.int8, (count, plan.units, UNIT_BUCKETS)
    return shapes


def _laid_out(
    shapes: dict[str, tuple[type, tuple[int, ...]]], room: Room | None
) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """Arrays of these shapes one behind the other, and where each begins."""
    sizes = [math.prod(shape) * np.dtype(kind).itemsize for kind, shape in shapes.values()]
    whole = None if room is None else room(sum(sizes))
    if whole is None:
        whole = np.empty(sum(sizes), np.uint8)
    found: dict[str, np.ndarray] = {}
    addresses, begin, first = {}, 0, whole.ctypes.data
    for (name, (kind, shape)), size in zip(shapes.items(), sizes, strict=True):
        found[name] = whole[begin : begin + size].view(kind).reshape(shape)
        addresses[name] = first + begin
        begin += size
    return found, addresses


def norms(rows: Tensor, layout: Layout) -> np.ndarray:
    """Of each layer of each row, [rows, layers]."""
    plan, count = _plain_plan(layout), len(rows)
    lying = rows if rows.stride(-1) == 1 or rows.shape[-1] <= 1 else rows.contiguous()
    first, apart = lying.data_ptr(), 4 * lying.stride(0)
    # By torch and ctypes alone: this is in the middle of a training, and numpy's way to an address costs as much again.
    found, places = torch.empty(count, plan.layers), (_number * count)(*[first + apart * row for row in range(count)])
    library().fedvitals_norms(plan.address, places, count, found.data_ptr())
    return found.numpy()


class RowNorms:
    """Of each layer of a row that stays where it is, [1, layers, 1]. Prepared once: in a training every way
    to an address is cold, and costs more than the norms do."""

    def __init__(self, row: Tensor, layout: Layout) -> None:
        self._row = row  # stays alive, and so where it is
        self._plan = _plain_plan(layout)
        self._place = (_number * 1)(row.data_ptr())
        self._found = np.empty((1, self._plan.layers, 1), np.float32)
        self._address = self._found.ctypes.data
        self._ask = (_holding_on() if len(row) <= SHORT else library()).fedvitals_norms

    def __call__(self) -> np.ndarray:
        self._ask(self._plan.address, self._place, 1, self._address)
        return self._found.copy()


@functools.cache
def _holding_on() -> Any:
    """The same functions, called with Python's lock held: of a short row, handing it over costs more than they do."""
    asked = ctypes.PyDLL(str(LIBRARY))
    asked.fedvitals_norms.restype = None
    asked.fedvitals_norms.argtypes = (_address, _address, _number, _address)
    _declare_pieces(asked)
    return asked


def _declare_pieces(found: Any) -> None:
    found.fedvitals_lengths.restype, found.fedvitals_lengths.argtypes = None, (_address, _address, _number, _address)
    found.fedvitals_same.restype, found.fedvitals_difference.restype = _number, None
    found.fedvitals_same.argtypes = (_address, _address, _number, _address)
    found.fedvitals_difference.argtypes = (_address, _address, _number, _address, _address)
    found.fedvitals_gather.restype, found.fedvitals_gather.argtypes = None, (_address, _address, _number, _address)


class Pieces:
    """A row that lies in pieces, as a model's tensors do: compared with a whole one, taken less that, or made whole.
    Each piece and the row lie value by value, in float32."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._count = len(sizes)
        self._sizes = (_number * self._count)(*sizes)
        self._places = _number * self._count
        self._library = _holding_on() if sum(sizes) <= SHORT else library()

    def same(self, tensors: Sequence[Tensor], row: Tensor) -> bool:
        """Whether they are that row, bit by bit."""
        places = self._places(*[tensor.data_ptr() for tensor in tensors])
        return bool(self._library.fedvitals_same(places, self._sizes, self._count, row.data_ptr()))

    def difference(self, tensors: Sequence[Tensor], row: Tensor, place: Tensor | None = None) -> Tensor:
        """In `place`, where one is given."""
        found = torch.empty(len(row)) if place is None else place
        places = self._places(*[tensor.data_ptr() for tensor in tensors])
        self._library.fedvitals_difference(places, self._sizes, self._count, row.data_ptr(), found.data_ptr())
        return found

    def gather(self, tensors: Sequence[Tensor], place: Tensor) -> Tensor:
        """A copy of them in `place`."""
        places = self._places(*[tensor.data_ptr() for tensor in tensors])
        self._library.fedvitals_gather(places, self._sizes, self._count, place.data_ptr())
        return place


def lengths(tensors: Sequence[Tensor]) -> Tensor | None:
    """The norm of each of some tensors; None where the kernel cannot read one as it lies."""
    if library() is None:
        return None
    places, sizes = [], []
    for tensor in tensors:
        if not (tensor.is_cpu and tensor.dtype is torch.float32 and tensor.is_contiguous()):
            return None
        places.append(tensor.data_ptr())
        sizes.append(tensor.numel())
    count, asked = len(sizes), _holding_on() if sum(sizes) <= SHORT else library()
    found, numbers = torch.empty(count), _number * count
    asked.fedvitals_lengths(numbers(*places), numbers(*sizes), count, found.data_ptr())
    return found
