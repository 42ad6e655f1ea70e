"""Rows that people have collected, for lessons: small tables that come with scikit-learn, and pictures from a file.

A table of 150 rows does not reach for a hundred clients: rows are drawn with replacement and jittered a little (the
smoothed bootstrap: Efron 1979), so that no two clients hold the same one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedvitals.bench.faults.problems import data_folder

Random = np.random.Generator
Array = NDArray[Any]
Ints = NDArray[np.int64]
Arrays = dict[str, Array]
Rows = tuple[Array, Ints]
JITTER = 0.15  # of a column's spread
PICTURES = "cifar10_subset/cifar10_subset.npz"


def cancer(random: Random, count: int) -> Rows:
    return _resampled("load_breast_cancer", random, count)


def wine(random: Random, count: int) -> Rows:
    return _resampled("load_wine", random, count)


def iris(random: Random, count: int) -> Rows:
    return _resampled("load_iris", random, count)


def cifar(random: Random, count: int) -> Rows:
    """Photographs of 32 by 32, made small: of 8 or 16 a side, in grey."""
    x, y = _pictures()
    rows = random.permutation(len(y))[:count]
    by = int(random.choice([2, 4, 4]))
    side = x.shape[1] // by
    found = x[rows].reshape(len(rows), side, by, side, by).mean(axis=(2, 4))
    return found.astype(np.uint8), y[rows]


COLLECTED: dict[str, Callable[[Random, int], Rows]] = {one.__name__: one for one in (cancer, wine, iris, cifar)}


def _resampled(name: str, random: Random, count: int) -> Rows:
    x, y = _table(name)
    rows = random.integers(len(y), size=count)
    return x[rows] + JITTER * x.std(axis=0) * random.standard_normal((count, x.shape[1])), y[rows]


@lru_cache(maxsize=4)
def _table(name: str) -> Rows:
    from sklearn import datasets

    x, y = getattr(datasets, name)(return_X_y=True)
    return x.astype(np.float64), y.astype(np.int64)


@lru_cache(maxsize=1)
def _pictures() -> Rows:
    with np.load(data_folder() / PICTURES, allow_pickle=False) as file:
        return file["x_train"].mean(axis=3).astype(np.uint8), file["y_train"].astype(np.int64)
