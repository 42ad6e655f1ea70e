"""Small learned scorers, read from a file that holds nothing but numbers, and used with numpy alone.

Each is a sum of small decision trees (gradient boosting: Friedman 2001). All rows go through a tree at once: every leaf
has a bit, every test that a row fails strikes out the leaves on the other side, and the lowest bit left is its leaf
(Lucchese et al., QuickScorer, SIGIR 2015).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedvitals.store.table import Floats

MOST_LEAVES = 16  # a bit each
HALF = 8  # leaves
ALL = 0xFF
ONE = np.uint8(1)
LOWEST = np.array([HALF, *((byte & -byte).bit_length() - 1 for byte in range(1, 256))])  # bit of a byte; HALF: none
AT_ONCE = 65_536  # rows: enough for the work to outweigh the calls, and a column still fits the cache
Test = tuple[int, float, bool, int, int]  # feature, threshold, missing goes left, leaves kept: lower half, upper half
SCORER = Path(__file__).with_name("scorer.npz")


@dataclass(frozen=True, slots=True, eq=False)
class Trees:
    """The tests and leaves of many trees, one after the other."""

    tree: NDArray[np.int32]  # of each test
    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]
    missing_left: NDArray[np.bool_]
    keep: NDArray[np.uint16]  # the leaves that are left when a row fails the test
    leaves: NDArray[np.float32]  # [trees, MOST_LEAVES]
    scorer: NDArray[np.int32]  # of each tree
    base: NDArray[np.float32]  # of each scorer

    def scores(self, features: NDArray[np.floating]) -> Floats:
        """[rows, scorers] from [rows, features]."""
        out = np.repeat(self.base[:, None].astype(np.float64), len(features), axis=1)
        trees = list(self._trees())
        for first in range(0, len(features), AT_ONCE):
            walk = _Walk(_by_columns(features[first : first + AT_ONCE]))
            for scorer, tests, leaves in trees:
                out[scorer, first : first + AT_ONCE] += walk.values(tests, *leaves)
        return out.T

    def _trees(self) -> Iterator[tuple[int, list[Test], NDArray[np.float32]]]:
        """Of each tree its scorer, its tests, and the values of the lowest leaf left: by the lower byte, the upper."""
        numbers = (self.feature, self.threshold, self.missing_left, self.keep & ALL, self.keep >> HALF)
        tests = list(zip(*(some.tolist() for some in numbers), strict=True))
        ends = np.searchsorted(self.tree, np.arange(len(self.scorer) + 1)).tolist()
        halves = self.leaves.reshape(-1, 2, HALF)
        values = np.where(LOWEST < HALF, halves[:, :, LOWEST % HALF], np.float32(0))
        for tree, scorer in enumerate(self.scorer.tolist()):
            yield scorer, tests[ends[tree] : ends[tree + 1]], values[tree]


def _by_columns(rows: NDArray[np.floating]) -> NDArray[np.float32]:
    """Such that a column's values follow one another."""
    if rows.dtype == np.float32 and rows.strides[0] == rows.itemsize:
        return rows.astype(np.float32, copy=False)
    return np.asfortranarray(rows, dtype=np.float32)


class _Walk:
    """Rows on their way through tree after tree. The leaves that are left stand in two bytes a row: nothing is quicker
    than bytes, and most tests are about leaves of one of them."""

    def __init__(self, columns: NDArray[np.float32]) -> None:
        self._columns = columns
        self._low, self._high, self._passed = (np.empty(len(columns), np.uint8) for _ in range(3))
        self._flag = self._passed.view(np.bool_)

    def values(
        self, tests: Sequence[Test], low_values: NDArray[np.float32], high_values: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """The value of each row's leaf."""
        self._low.fill(ALL)
        self._high.fill(ALL)
        for feature, threshold, missing_left, low, high in tests:
            passed = self._compared(self._columns[:, feature], threshold, missing_left)
            for side, keep in ((self._low, low), (self._high, high)):
                if keep != ALL:
                    side &= passed | keep
        none_low = np.negative((self._low == 0).view(np.uint8))
        self._high &= none_low  # the lowest leaf counts, and one of the two values is 0
        found: NDArray[np.float32] = low_values.take(self._low, mode="clip")
        found += high_values.take(self._high, mode="clip")
        return found

    def _compared(self, values: NDArray[np.float32], limit: float, missing_left: bool) -> NDArray[np.uint8]:
        """All bits where a row passes, none where it fails; of a missing value the test says which."""
        passed = self._passed
        if missing_left:
            np.greater(values, limit, out=self._flag)
            return np.subtract(passed, ONE, out=passed)
        np.less_equal(values, limit, out=self._flag)
        return np.negative(passed, out=passed)


@dataclass(frozen=True, slots=True, eq=False)
class Thresholds:
    """Taken from runs without a fault."""

    accuse: Floats  # [alarms, clocks]: each by itself
    suspect: Floats
    easing: Floats  # [contexts]: by how much the highest of a sound run rises with each
    levels: Floats  # [2]: where, with that taken off, suspects of a run begin, and the accused


@dataclass(frozen=True, slots=True, eq=False)
class Scorers:
    """Alarms say that something is wrong, with thresholds from runs without a fault; kinds say what it looks like."""

    alarms: tuple[str, ...]
    kinds: tuple[str, ...]
    features: tuple[str, ...]
    thresholds: Thresholds
    alarming: Trees  # a scorer an alarm
    naming: Trees  # a scorer a kind, each against the other kinds


def load(path: Path = SCORER) -> Scorers:
    """The scorers that ship with fedvitals, or those of another file."""
    with np.load(path, allow_pickle=False) as file:
        about: Mapping[str, Any] = json.loads(str(file["about"]))
        alarming, naming = (
            Trees(**{name: file[f"{part}_{name}"] for name in Trees.__dataclass_fields__})
            for part in ("alarming", "naming")
        )
        return Scorers(
            tuple(about["alarms"]),
            tuple(about["kinds"]),
            tuple(about["features"]),
            Thresholds(**{name: file[name].astype(float) for name in Thresholds.__dataclass_fields__}),
            alarming,
            naming,
        )


def save(path: Path, scorers: Scorers, about: Mapping[str, Any]) -> None:
    """Keep scorers in a file, with a few words on where they come from."""
    words = {name: list(getattr(scorers, name)) for name in ("alarms", "kinds", "features")}
    arrays = {
        f"{part}_{name}": getattr(getattr(scorers, part), name)
        for part in ("alarming", "naming")
        for name in Trees.__dataclass_fields__
    }
    limits = {name: getattr(scorers.thresholds, name).astype(np.float32) for name in Thresholds.__dataclass_fields__}
    np.savez_compressed(
        path,
        about=np.array(json.dumps({**about, **words})),
        **limits,
        **arrays,
    )
