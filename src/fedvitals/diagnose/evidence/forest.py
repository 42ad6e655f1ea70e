"""Small learned scorers, read from a file that holds nothing but numbers, and used with numpy alone.

Each is a sum of small decision trees (gradient boosting: Friedman 2001). All rows go through a tree at once: every leaf
has a bit, every test that a row fails strikes out the leaves on the other side, and the lowest bit left is its leaf
(Lucchese et al., QuickScorer, SIGIR 2015).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedvitals.store.table import Floats

MOST_LEAVES = 16  # a bit each
ALL = np.uint16(0xFFFF)
AT_ONCE = 16_384  # rows: what is worked on stays in the cache
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
        out = np.repeat(self.base[None].astype(np.float64), len(features), axis=0)
        starts = np.searchsorted(self.tree, np.arange(len(self.scorer) + 1)).tolist()
        for first in range(0, len(features), AT_ONCE):
            columns = np.asfortranarray(features[first : first + AT_ONCE], dtype=np.float32)
            some = out[first : first + AT_ONCE]
            for tree, scorer in enumerate(self.scorer.tolist()):
                some[:, scorer] += _leaf_values(self, tree, starts[tree], starts[tree + 1], columns)
        return out


@dataclass(frozen=True, slots=True, eq=False)
class Scorers:
    """Alarms say that something is wrong, with thresholds from runs without a fault; kinds say what it looks like."""

    alarms: tuple[str, ...]
    kinds: tuple[str, ...]
    features: tuple[str, ...]
    accuse: Floats  # [alarms, clocks]
    suspect: Floats
    alarming: Trees  # a scorer an alarm
    naming: Trees  # a scorer a kind, each against the other kinds


def _leaf_values(trees: Trees, tree: int, start: int, end: int, columns: NDArray[np.float32]) -> NDArray[np.float32]:
    left = np.full(len(columns), ALL)
    for test in range(start, end):
        values = columns[:, trees.feature[test]]
        limit = trees.threshold[test]
        passed = ~(values > limit) if trees.missing_left[test] else values <= limit
        keep = trees.keep[test]
        left &= np.multiply(passed.view(np.uint8), ALL ^ keep, dtype=np.uint16) | keep  # all, or what is kept
    lowest = left & (~left + np.uint16(1))
    place = np.frexp(lowest.astype(np.float32))[1] - 1
    found: NDArray[np.float32] = trees.leaves[tree, place]
    return found


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
            file["accuse"].astype(float),
            file["suspect"].astype(float),
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
    np.savez_compressed(
        path,
        about=np.array(json.dumps({**about, **words})),
        accuse=scorers.accuse.astype(np.float32),
        suspect=scorers.suspect.astype(np.float32),
        **arrays,
    )
