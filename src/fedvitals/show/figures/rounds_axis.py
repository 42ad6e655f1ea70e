"""Rounds along an axis: each by itself, or, of very many, some put together."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedvitals.store.table import Floats, Ints
from fedvitals.vocabulary import Round

MOST_COLUMNS = 240


class Columns(NamedTuple):
    """What stands beside each other: the rounds' numbers, and which column each round falls into."""

    place: Ints  # of each round, in the order in which they began
    labels: tuple[str, ...]  # a number, or `0-4`
    each: int  # rounds a column

    @property
    def note(self) -> str:
        """What is to be said of it."""
        return f"each column is {self.each} rounds" if self.each > 1 else ""

    @property
    def x(self) -> list[str] | list[int]:
        """Positions: the rounds' own numbers where each has a column."""
        return list(self.labels) if self.each > 1 else [int(label) for label in self.labels]


def columns_of(rounds: tuple[Round, ...], most: int = MOST_COLUMNS) -> Columns:
    """At most so many columns, of as many rounds each."""
    numbers = [one.number for one in rounds]
    each = max(-(-len(numbers) // most), 1)
    groups = [numbers[first : first + each] for first in range(0, len(numbers), each)]
    labels = tuple(str(some[0]) if each == 1 else f"{some[0]}-{some[-1]}" for some in groups)
    return Columns(np.arange(len(numbers)) // each, labels, each)


def means(values: Floats, columns: Columns) -> Floats:
    """[rounds, ...] -> [columns, ...]: the mean of what is known."""
    found = np.full((len(columns.labels), *values.shape[1:]), np.nan)
    for column in range(len(columns.labels)):
        some = values[columns.place == column]
        known = np.isfinite(some)
        counts = known.sum(axis=0)
        total = np.where(known, some, 0.0).sum(axis=0)
        found[column] = np.where(counts > 0, total / np.maximum(counts, 1), np.nan)
    return found
