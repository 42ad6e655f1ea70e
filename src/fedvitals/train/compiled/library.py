"""The compiled trainer (trainer.c), where the installation has one: found, checked and called through ctypes.

It is compiled when fedvitals is installed and a C compiler is there. Its structures are those of trainer.h.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

import numpy as np

VERSION = 2
LIBRARY = Path(__file__).with_name("_trainer.so")
DENSE, PICTURE = 0, 1
MOST_LAYERS = 64

_short, _number, _address, _float = ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p, ctypes.c_float


class LayerStructure(ctypes.Structure):
    _fields_ = (
        *((name, _short) for name in ("kind", "inputs", "outputs", "relu", "pool", "kernel", "pad", "height", "width")),
        *((name, _number) for name in ("weight", "bias")),
    )


class ProgramStructure(ctypes.Structure):
    _fields_ = (
        ("layers", _address),
        *((name, _number) for name in ("count", "size", "classes", "batch", "epochs")),
        *((name, _float) for name in ("momentum", "weight_decay", "clip", "proximal")),
    )


# Of many clients at once: an array of numpy's, which is filled column by column.
CLIENT = np.dtype(
    [
        *((name, np.uint64) for name in ("x", "y", "numbers", "orders")),
        *((name, np.int64) for name in ("usable", "samples")),
        *((name, np.uint64) for name in ("wanted", "gradients", "norms", "update", "losses")),
        ("lr", np.float32),
    ],
    align=True,
)


class CohortStructure(ctypes.Structure):
    _fields_ = (
        *((name, _address) for name in ("program", "received", "clients")),
        *((name, _number) for name in ("count", "order_length", "features", "next")),
        ("stop", _short),
    )


@functools.cache
def library() -> Any:
    """The compiled trainer; None where there is none, or one of another version."""
    try:
        found = ctypes.CDLL(str(LIBRARY))
        found.fedvitals_trainer_version.restype = found.fedvitals_trainer_room.restype = _number
        found.fedvitals_trainer_room.argtypes = (_address, _number)
        found.fedvitals_train.argtypes, found.fedvitals_train.restype = (_address, _address), None
        return found if found.fedvitals_trainer_version() == VERSION else None
    except (OSError, AttributeError):
        return None
