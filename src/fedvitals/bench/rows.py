"""Rows for benchmarks, made on the spot: a job names them as `fedvitals.bench.rows:pictures`."""

from __future__ import annotations

import numpy as np

from fedvitals.randomness import stream

CLASSES = 10


def pictures() -> tuple[np.ndarray, np.ndarray]:
    """12,500 pictures of 28 x 28 whose class is where they are bright."""
    random = stream(1, "bench pictures")
    y = random.integers(0, CLASSES, 12_500)
    x = random.integers(0, 128, (len(y), 28, 28)).astype(np.uint8)
    for label in range(CLASSES):
        x[y == label, 2 * label : 2 * label + 6, 4:24] += 100
    return x, y


def sentences() -> dict[str, np.ndarray]:
    """12,500 rows of 20 tokens out of 63; the class is the number of rare tokens."""
    random = stream(1, "bench sentences")
    x = random.integers(0, 63, (12_500, 20)).astype(np.uint8)
    y = np.minimum((x < 12).sum(axis=1), CLASSES - 1).astype(np.int64)
    cut = 10_000
    vocabulary = np.array([chr(48 + i) for i in range(63)])
    return {"x_train": x[:cut], "y_train": y[:cut], "x_test": x[cut:], "y_test": y[cut:], "vocab": vocabulary}
