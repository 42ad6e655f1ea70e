"""The compiled kernel (kernel.c), where the installation has one: found, checked and called through ctypes.

It is compiled when fedvitals is installed and a C compiler is there. Without it statistics.py does the same by torch
operations, several times slower; `in_use` says which, and the run's environment shows it.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedvitals.capture.tensors.plan import Arrangement, plain_plan, plan_of
from fedvitals.capture.tensors.sketch import Sketcher
from fedvitals.vocabulary import Layout

VERSION = 6
LIBRARY = Path(__file__).with_name("_kernel.so")
SHORT = 1 << 16  # values, whose norms take some microseconds
HOST = torch.device("cpu")  # said wherever there is something to write: a user may have set another default

_number, _address = ctypes.c_int64, ctypes.c_void_p


@functools.cache
def library() -> Any:
    """The compiled kernel; None where there is none, or one of another version."""
    try:
        found = ctypes.CDLL(str(LIBRARY))
        found.fedvitals_version.restype = found.fedvitals_summarise.restype = _number
        found.fedvitals_norms.restype = None
        found.fedvitals_summarise.argtypes = (
            *(_address, _address, _address, _number),
            *(_address, _number, _address, _address),
        )
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


Room = Callable[[int], np.ndarray | None]  # so many bytes to put something into, where there are any


class Found(NamedTuple):
    """What was found out, as it lies."""

    whole: np.ndarray  # bytes
    arrangement: Arrangement
    bad: int  # rows whose norm is not finite

    def fields(self) -> dict[str, Any]:
        """Of a `Summary`."""
        parts = self.arrangement.parts.items()
        fields: dict[str, Any] = {
            name: self.whole[part.begin : part.end].view(part.kind).reshape(part.shape) for name, part in parts
        }
        return fields if self.bad else fields | {"nonfinite": None}


def find_out(
    rows: Sequence[Tensor],
    layout: Layout,
    sketcher: Sketcher | None,
    groups: Sequence[int] | None,
    room: Room | None = None,
) -> Found:
    """Of rows that `kernel.takes`; into `room`, where it has any."""
    plan = plan_of(layout, sketcher)
    lying = _as_they_lie(rows)
    count = sum(map(len, lying))
    arrangement = plan.arranged(count, groups is not None)
    whole = None if room is None else room(arrangement.size_bytes)
    if whole is None:
        whole = np.empty(arrangement.size_bytes, np.uint8)
    sizes = [count] if groups is None else groups
    each = _each(lying)
    bad = library().fedvitals_summarise(
        plan.address,
        None if each is None else each.ctypes.data,
        lying[0].data_ptr() if each is None else None,
        lying[0].stride(0) if each is None else 0,
        (_number * len(sizes))(*sizes),
        len(sizes),
        whole.__array_interface__["data"][0],  # numpy's other ways to an address are several times slower
        arrangement.places,
    )
    if bad < 0:
        raise MemoryError(f"there is no memory to summarise rows of {plan.size:,} values")
    return Found(whole, arrangement, bad)


def _as_they_lie(rows: Sequence[Tensor]) -> list[Tensor]:
    """Each row value by value: copied where it is not."""
    return [part if part.stride(-1) == 1 or part.shape[-1] <= 1 else part.contiguous() for part in rows]


def _each(rows: Sequence[Tensor]) -> np.ndarray | None:
    """Where each row is; None for rows of one matrix, which lie as far apart as its stride says."""
    if len(rows) == 1:
        return None
    if all(len(part) == 1 for part in rows):
        return np.array([part.data_ptr() for part in rows], np.int64)
    return np.concatenate([_places(part) for part in rows])


def _places(part: Tensor) -> np.ndarray:
    return part.data_ptr() + 4 * part.stride(0) * np.arange(len(part), dtype=np.int64)


def norms(rows: Tensor, layout: Layout) -> np.ndarray:
    """Of each layer of each row, [rows, layers]."""
    plan, count = plain_plan(layout), len(rows)
    lying = rows if rows.stride(-1) == 1 or rows.shape[-1] <= 1 else rows.contiguous()
    first, apart = lying.data_ptr(), 4 * lying.stride(0)
    # By torch and ctypes alone: this is in the middle of a training, and numpy's way to an address costs as much again.
    found = torch.empty(count, plan.layers, dtype=torch.float32, device=HOST)
    places = (_number * count)(*[first + apart * row for row in range(count)])
    library().fedvitals_norms(plan.address, places, count, found.data_ptr())
    return found.numpy()


def distances(rows: Sequence[Tensor], beside: Sequence[Tensor]) -> list[float]:
    """How far each row is from the one beside it; all of one size, each lying value by value."""
    count = len(rows)
    places, found = _address * count, (ctypes.c_double * count)()
    each, others = places(*[row.data_ptr() for row in rows]), places(*[row.data_ptr() for row in beside])
    library().fedvitals_distances(each, others, count, len(rows[0]), found)
    return list(found)


class RowNorms:
    """Of each layer of a row that stays where it is, [1, layers, 1]. Prepared once: in a training every way
    to an address is cold, and costs more than the norms do."""

    def __init__(self, row: Tensor, layout: Layout) -> None:
        self._row = row  # stays alive, and so where it is
        self._plan = plain_plan(layout)
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
    found.fedvitals_distances.restype = None
    found.fedvitals_distances.argtypes = (_address, _address, _number, _number, _address)
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
        found = torch.empty(len(row), dtype=torch.float32, device=HOST) if place is None else place
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
        if not (tensor.is_cpu and tensor.dtype is torch.float32 and tensor.layout is torch.strided):
            return None
        if not tensor.is_contiguous():  # a question that a sparse tensor does not answer
            return None
        places.append(tensor.data_ptr())
        sizes.append(tensor.numel())
    count, asked = len(sizes), _holding_on() if sum(sizes) <= SHORT else library()
    found, numbers = torch.empty(count, dtype=torch.float32, device=HOST), _number * count
    asked.fedvitals_lengths(numbers(*places), numbers(*sizes), count, found.data_ptr())
    return found
