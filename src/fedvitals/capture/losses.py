"""Losses of single steps: which of them are kept when there are too many."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

MOST_KEPT = 32
KEPT_FIRST = 8


@functools.lru_cache(maxsize=256)
def kept_steps(steps: int) -> np.ndarray:
    """All of them up to 32; else the first 8 and 24 spread evenly to the last."""
    if steps <= MOST_KEPT:
        return np.arange(steps, dtype=np.int32)
    rest = np.linspace(KEPT_FIRST, steps - 1, MOST_KEPT - KEPT_FIRST)
    return np.concatenate((np.arange(KEPT_FIRST), np.rint(rest))).astype(np.int32)


def kept_losses(losses: Sequence[Any] | np.ndarray) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Losses [rows, kept] and their step numbers, padded with NaN and -1; None when no row has any."""
    if isinstance(losses, np.ndarray):
        return _evenly(losses, len(losses), losses.shape[1]) if losses.size else (None, None)
    lengths = [0 if row is None else len(row) for row in losses]
    width = min(max(lengths, default=0), MOST_KEPT)
    if width == 0:
        return None, None
    if min(lengths) == max(lengths):
        return _evenly(np.asarray(losses, np.float32), len(losses), lengths[0])
    kept = np.full((len(losses), width), np.nan, np.float32)
    numbers = np.full((len(losses), width), -1, np.int32)
    for i, row in enumerate(losses):
        if row is not None and len(row):
            chosen = kept_steps(len(row))
            numbers[i, : len(chosen)] = chosen
            kept[i, : len(chosen)] = np.asarray(row, np.float32)[chosen]
    return kept, numbers


def _evenly(losses: np.ndarray, rows: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """The common case, all rows equally long, at once."""
    kept = losses if steps <= MOST_KEPT else losses[:, kept_steps(steps)]
    return kept.astype(np.float32, copy=False), _kept_by_all(rows, steps)


@functools.lru_cache(maxsize=256)
def _kept_by_all(rows: int, steps: int) -> np.ndarray:
    """A row for each, which is the same one."""
    chosen = kept_steps(steps)
    return np.broadcast_to(chosen, (rows, len(chosen)))
