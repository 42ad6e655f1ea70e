"""What the compiled kernel is told of a layout, and how the memory is divided that it leaves its answers in.

Both are worked out once: how a piece of memory is divided, for so many rows of a layout.
"""

from __future__ import annotations

import ctypes
import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fedvitals.capture.tensors.sketch import UNIT_BUCKETS, Sketcher, unit_sketch_scale
from fedvitals.vocabulary import STATISTICS, Layout

PARTS = ("norms", "stats", "nonfinite", "cosines", "sketches", "unit_norms", "unit_sums", "unit_sketches")
NOT_ASKED = -1

_number, _address = ctypes.c_int64, ctypes.c_void_p


class PlanStructure(ctypes.Structure):
    _fields_ = (
        *((name, _number) for name in ("layers", "size", "buckets", "units")),
        *((name, _number) for name in ("unit_start", "unit_columns")),
        *((name, _address) for name in ("layer_sizes", "layer_buckets", "signs", "unit_projection")),
        ("unit_step", ctypes.c_float),
    )


class Plan:
    """What the kernel has to know of a layout and its sketcher; keeps alive what its structure points to."""

    def __init__(self, layout: Layout, sketcher: Sketcher | None) -> None:
        sizes = np.array([layer.size for layer in layout.layers], np.int64)
        self.layers, self.size = len(sizes), int(sizes.sum())
        self.buckets = self.units = 0
        self.sketched = sketcher is not None
        self._kept: list[Any] = [sizes]
        self.structure = PlanStructure(layers=self.layers, size=self.size, layer_sizes=sizes.ctypes.data)
        self.address = ctypes.byref(self.structure)
        if sketcher is not None:
            self._add_sketcher(layout, sketcher)
        self.arranged = lru_cache(maxsize=64)(self._arranged)

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

    def _arranged(self, count: int, compared: bool) -> Arrangement:
        return Arrangement(self._shapes(count, compared))

    def _shapes(self, count: int, compared: bool) -> dict[str, tuple[type, tuple[int, ...]]]:
        """Largest numbers first: so each lies where its kind may."""
        shapes: dict[str, tuple[type, tuple[int, ...]]] = {
            "norms": (np.float64, (count,)),
            "stats": (np.float32, (count, self.layers, len(STATISTICS))),
            "nonfinite": (np.uint32, (count, self.layers)),
        }
        if compared:
            shapes["cosines"] = np.float32, (count,)
        if self.sketched:
            shapes["sketches"] = np.float16, (count, self.buckets)
        if self.units:
            shapes |= dict.fromkeys(("unit_norms", "unit_sums"), (np.float16, (count, self.units)))
            shapes["unit_sketches"] = np.int8, (count, self.units, UNIT_BUCKETS)
        return shapes


class Part(NamedTuple):
    kind: type
    shape: tuple[int, ...]
    begin: int
    end: int


class Arrangement:
    """How a piece of memory is divided."""

    def __init__(self, shapes: dict[str, tuple[type, tuple[int, ...]]]) -> None:
        self.parts: dict[str, Part] = {}
        end = 0
        for name, (kind, shape) in shapes.items():
            begin, end = end, end + math.prod(shape) * np.dtype(kind).itemsize
            self.parts[name] = Part(kind, shape, begin, end)
        self.size_bytes = end
        self.places = (_number * len(PARTS))(
            *(self.parts[name].begin if name in self.parts else NOT_ASKED for name in PARTS)
        )


@lru_cache(maxsize=16)
def plain_plan(layout: Layout) -> Plan:
    """For statistics alone."""
    return Plan(layout, None)


def plan_of(layout: Layout, sketcher: Sketcher | None) -> Plan:
    if sketcher is None:
        return plain_plan(layout)
    if sketcher.plan is None:
        sketcher.plan = Plan(layout, sketcher)
    return sketcher.plan  # type: ignore[no-any-return]  # sketch.py knows nothing of this module
