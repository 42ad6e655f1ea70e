"""Everything in capture that touches tensors: their layout, their statistics, their sketches.

All arithmetic stays on the tensors' device; a `Summary` crosses to the host once.
"""

from torch import Tensor as Row

from fedvitals.capture.tensors import kernel
from fedvitals.capture.tensors.layout import FlatRow, Flattener, Source
from fedvitals.capture.tensors.rows import distances, gradient_statistics, measuring, nonfinite, norms_of, unchanged
from fedvitals.capture.tensors.shelf import Shelf
from fedvitals.capture.tensors.sketch import Sketcher, angle, unit_sketch_scale
from fedvitals.capture.tensors.snapshot import Snapshot
from fedvitals.capture.tensors.sources import Choice, bare, taken
from fedvitals.capture.tensors.statistics import Summary, cosines_to_others, joined, named, summarise

__all__ = [
    "Choice",
    "FlatRow",
    "Flattener",
    "Row",
    "Shelf",
    "Sketcher",
    "Snapshot",
    "Source",
    "Summary",
    "angle",
    "bare",
    "cosines_to_others",
    "distances",
    "gradient_statistics",
    "joined",
    "kernel",
    "measuring",
    "named",
    "nonfinite",
    "norms_of",
    "summarise",
    "taken",
    "unchanged",
    "unit_sketch_scale",
]
