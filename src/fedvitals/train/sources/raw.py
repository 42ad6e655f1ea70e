"""What every source gives: arrays as they were found, before they are judged, shaped and scaled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedvitals.errors import DataError

Array = NDArray[Any]
KEYS = ("x_train", "y_train", "x_test", "y_test", "client", "client_names", "class_names", "vocab")
MOST_NAMED = 20  # arrays of a file that lacks the one it needs
MAX_BYTES = 4 * 2**30  # of all rows as float32 or int64, which is what they become in memory


@dataclass(frozen=True, slots=True, eq=False)
class Raw:
    """Arrays of a source. `divisor` is what `scale = "auto"` divides by; None: look at the values."""

    origin: str  # how errors call it
    x_train: Array
    y_train: Array
    x_test: Array | None = None
    y_test: Array | None = None
    client: Array | None = None  # the natural client of each training row
    client_names: tuple[str, ...] = ()  # by client number
    vocabulary: int = 0  # tokens there are; 0: not said
    classes: int = 0  # classes there are; 0: not said
    divisor: float | None = None

    def __post_init__(self) -> None:
        if self.divisor is None and self.x_train.dtype == np.uint8:
            object.__setattr__(self, "divisor", 255.0)


def raw_from(origin: str, arrays: Mapping[str, Array], there: Iterable[str] = ()) -> Raw:
    """Arrays under their usual names: `x_train` and `y_train`, and what else of KEYS there is. `there` are the names of
    all arrays of the source, where more were left unread."""
    for key in ("x_train", "y_train"):
        if key not in arrays:
            names = ", ".join(list(there or arrays)[:MOST_NAMED]) or "nothing"
            raise DataError(f"{origin}: there is no array {key!r}; what there is: {names}")
    if ("x_test" in arrays) != ("y_test" in arrays):
        raise DataError(f"{origin}: x_test and y_test come together; only one of them is there")
    for key in ("x_train", "x_test"):
        if key in arrays and arrays[key].ndim == 0:
            raise DataError(f"{origin}: {key} is a single value; right is an array of rows")
    return Raw(
        origin,
        arrays["x_train"],
        arrays["y_train"],
        arrays.get("x_test"),
        arrays.get("y_test"),
        client=arrays.get("client"),
        client_names=tuple(str(name) for name in arrays["client_names"].ravel()) if "client_names" in arrays else (),
        vocabulary=arrays["vocab"].size if "vocab" in arrays else 0,
        classes=arrays["class_names"].size if "class_names" in arrays else 0,
    )
