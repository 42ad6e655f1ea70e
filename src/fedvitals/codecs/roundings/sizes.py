"""How many steps of a grid each value takes, most of them none: told value by value, each by how likely it is.

Rows that are seldom used (rare words, classes that a client does not have) and columns that never are (dark pixels)
have fewer values, and smaller ones, than others. Both ends have seen the values before, so nothing is sent about that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fedvitals.codecs.roundings.learning import ONE, Lines, Mixture, Whole, chance, logarithm
from fedvitals.codecs.roundings.places import Indices, Labels, Matrix, Places, pieces, places
from fedvitals.codecs.streams import Flags, Shares

Sizes = NDArray[np.int32]
# Whether the values at these indices are larger than a level, of which the chances are known.
Ask = Callable[[Indices, int, Shares], Flags]

TOLD = 7  # sizes from here on are told as just that
WEIGHTS = (0.6, 0.45, 0.75, 0.55)  # of rows, columns, and those of layers alike: where learning begins
FURTHER_WEIGHTS = (0.3, 0.3, 0.3, 0.3)
SHARE = (2, 64)  # of values that are there, before any was seen
FURTHER = (2, 20)  # of those that are there and larger than the smallest, the same
ALIKE = 2  # values of the whole update that count in each layer


def told(ask: Ask, matrices: Sequence[Matrix], most: int) -> Sizes:
    """All sizes up to `most`, one answer after the other: who writes knows them, and who reads learns them."""
    found = [np.zeros(0, dtype=np.int32)]
    begin = 0
    for piece in pieces(matrices):
        found.append(_piece(ask, places(piece), begin, min(most, TOLD)))
        begin += len(found[-1])
    return np.concatenate(found)


def _piece(ask: Ask, where: Places, begin: int, most: int) -> Sizes:
    sizes: Sizes = np.zeros(len(where.order), dtype=np.int32)
    seen = _Seen(where)
    for part in where.parts():
        indices, layers, lines = where.order[part], where.layers[part], where.lines[:, part]
        odds, expected = seen.of_layers(layers)
        evidence = seen.lines.evidence(lines)
        chances = seen.presence.chances(odds, evidence)
        there = ask(indices + begin, 0, chances / ONE)
        found = indices[there]
        sizes[found] = 1 + seen.further(ask, found + begin, evidence[:, there], most)
        seen.presence.learn(evidence, chances, there.astype(np.int64), 1)
        seen.lines.look(lines, there, expected)
        seen.count(layers, there)
    return sizes


class _Seen:
    """What both ends have seen of a piece so far."""

    def __init__(self, where: Places) -> None:
        self.presence, self._sizes = Mixture(WEIGHTS), Mixture(FURTHER_WEIGHTS)
        self.lines = Lines(int(where.lines.max()) + 1)
        layers = int(where.layers.max()) + 1
        self._there: Shares = np.zeros(layers)
        self._values: Shares = np.zeros(layers)
        self._more, self._trials = FURTHER

    def of_layers(self, labels: Labels) -> tuple[Whole, Shares]:
        """The odds of each value by its layer alone, and the chances that come of them."""
        there, values = SHARE[0] + self._there.sum(), SHARE[1] + self._values.sum()
        yes = self._there * values + ALIKE * there
        no = (self._values - self._there) * values + ALIKE * (values - there)
        odds = logarithm(yes) - logarithm(no)
        return odds[labels], chance(odds).astype(np.float64)[labels]

    def further(self, ask: Ask, indices: Indices, evidence: Whole, most: int) -> Sizes:
        """Steps beyond the first of values that are there: whether there is one more, and one more."""
        more: Sizes = np.zeros(len(indices), dtype=np.int32)
        if most < 2:
            return more
        yes, no = logarithm(np.array([self._more, self._trials - self._more], dtype=np.float64)).tolist()
        chances = self._sizes.chances(yes - no, evidence)
        going = np.arange(len(indices))
        for level in range(1, most):
            if not len(going):
                break
            going = going[ask(indices[going], level, chances[going] / ONE)]
            more[going] += 1
        trials = np.minimum(more + 1, most - 1).astype(np.int64)
        self._sizes.learn(evidence, chances, more.astype(np.int64), trials)
        self._more += int(more.sum())
        self._trials += int(trials.sum())
        return more

    def count(self, layers: Labels, there: Flags) -> None:
        self._there += np.bincount(layers[there], minlength=len(self._there))
        self._values += np.bincount(layers, minlength=len(self._there))
