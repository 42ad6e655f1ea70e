"""How likely something is, by what was seen of its layer, row and column: whole numbers only, so that both ends, on any
machine, come to the same chances.

Each line (a row, a column) has a weight of evidence: how many there were beside how many its layer let expect. A chance
is the layer's own and these, added up as logarithms of odds; how much each counts is learned on the way (logistic
mixing, as in M. Mahoney, Adaptive Weighing of Context Models for Lossless Data Compression, 2005).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from fedvitals.codecs.roundings.places import Labels
from fedvitals.codecs.streams import Flags, Shares

Whole = NDArray[np.int64]

ONE = 2**16  # a chance of 1, a weight of 1
DOUBLE = 256  # twice as likely
LEAST = 4  # of ONE: nothing is quite impossible
MOST_ODDS = 14 * DOUBLE  # about LEAST
DOUBT = ONE // 2  # values as expected that a line's own weigh against
MOST_WEIGHT = 2 * ONE
STIFFNESS = 2**35  # of weights: how much has to be seen until they move
SPEED = 23  # of their learning: a power of two
_MANTISSA = 512


class Lines:
    """What was seen of rows and columns."""

    def __init__(self, count: int) -> None:
        self._seen: Shares = np.zeros(count)  # whole numbers, as all here are: their sums are exact
        self._expected: Shares = np.zeros(count)

    def evidence(self, labels: Labels) -> Whole:
        """Of the line of each value, [kinds, values]: that it has more than expected, or less."""
        if labels.size < len(self._seen):  # as where values are in no rows: each would be a line of its own
            return _more(self._seen[labels], self._expected[labels])
        found: Whole = _more(self._seen, self._expected)[labels]
        return found

    def look(self, labels: Labels, there: Flags, expected: Shares) -> None:
        """Values of these lines, [kinds, values]: which were there, and how far they were expected, in parts of ONE."""
        flat, count, kinds = labels.reshape(-1), len(self._seen), len(labels)
        self._seen += ONE * np.bincount(labels[:, there].reshape(-1), minlength=count)
        self._expected += np.bincount(flat, np.tile(expected, kinds), count)


class Mixture:
    """Chances from odds and evidence, and the weights of the latter."""

    def __init__(self, weights: Sequence[float]) -> None:
        self._weights = np.array([round(weight * ONE) for weight in weights], dtype=np.int64)

    def chances(self, odds: Whole | int, evidence: Whole) -> Whole:
        """[values], of odds [values] and evidence [kinds, values]."""
        return chance(odds + ((self._weights @ evidence) >> 16))

    def learn(self, evidence: Whole, chances: Whole, yes: Whole, trials: Whole | int) -> None:
        """How often it was so, of so many trials each."""
        errors = yes * ONE - trials * chances
        doubt = trials * ((chances * (ONE - chances)) >> 16)
        pulls, holds = (evidence @ errors).tolist(), ((evidence * evidence) @ doubt).tolist()
        for number, (pull, hold) in enumerate(zip(pulls, holds, strict=True)):
            moved = int(self._weights[number]) + (pull << SPEED) // (hold + STIFFNESS)
            self._weights[number] = min(max(moved, 0), MOST_WEIGHT)


def _more(seen: Shares, expected: Shares) -> Whole:
    return logarithm(seen + DOUBT) - logarithm(expected + DOUBT)


def logarithm(numbers: Shares) -> Whole:
    """Of whole numbers from 1 to 2**53, in parts of DOUBLE."""
    mantissas, exponents = np.frexp(numbers)
    found: Whole = _logarithms()[(mantissas * (2 * _MANTISSA)).astype(np.int64) - _MANTISSA]
    found += exponents * DOUBLE
    return found


def chance(odds: Whole) -> Whole:
    """In parts of ONE, of logarithms of odds."""
    found: Whole = _chances()[np.clip(odds, -MOST_ODDS, MOST_ODDS) + MOST_ODDS]
    return found


@cache
def _logarithms() -> Whole:
    """Of 512/1024 to 1023/1024: the length of a number's 256th power is its logarithm, exactly."""
    least = DOUBLE * (2 * _MANTISSA).bit_length() - DOUBLE
    numbers = range(_MANTISSA, 2 * _MANTISSA)
    return np.array([(number**DOUBLE).bit_length() - 1 - least for number in numbers], dtype=np.int64)


@cache
def _chances() -> Whole:
    """Of all odds that there are. The 256th root of a power of two is eight square roots of it."""
    roots = []
    for part in range(DOUBLE):
        root = 1 << (part + 40 * DOUBLE)
        for _ in range(DOUBLE.bit_length() - 1):
            root = math.isqrt(root)
        roots.append(root)  # 2 ** (40 + part / 256)
    found = []
    for odds in range(-MOST_ODDS, MOST_ODDS + 1):
        doubles, part = divmod(odds, DOUBLE)
        yes, no = roots[part] << (doubles + 14), 1 << (40 + 14)
        found.append(min(max(ONE * yes // (yes + no), LEAST), ONE - LEAST))
    return np.array(found, dtype=np.int64)
