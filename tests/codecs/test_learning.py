"""Chances from what was seen: the same whole numbers everywhere."""

from __future__ import annotations

import math
import zlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedvitals.codecs.roundings.learning import DOUBLE, LEAST, MOST_ODDS, ONE, Lines, Mixture, chance, logarithm

CHANCES, LOGARITHMS = 0x924B996F, 0x32F8D198  # checksums


@given(st.integers(1, 2**53))
def test_logarithms_are_near_the_true_ones(number: int) -> None:
    """From below, by less than a hundredth of a doubling."""
    found = int(logarithm(np.array([float(number)]))[0]) / DOUBLE
    assert math.log2(number) - 0.01 < found <= math.log2(number) + 1e-9


def test_chances_are_those_of_the_odds() -> None:
    """To a part in 65,536; more likely with every step."""
    odds = np.arange(-MOST_ODDS, MOST_ODDS + 1)
    found = chance(odds)
    true = ONE / (1 + 2.0 ** (-odds / DOUBLE))
    assert np.abs(found - np.clip(true, LEAST, ONE - LEAST)).max() <= 1
    assert (np.diff(found) >= 0).all()


def test_all_machines_have_the_same_tables() -> None:
    """A message is read by other machines than the one that wrote it."""
    odds = np.arange(-MOST_ODDS, MOST_ODDS + 1)
    assert zlib.crc32(chance(odds).astype("<i8").tobytes()) == CHANCES
    assert zlib.crc32(logarithm(np.arange(1.0, 2**16)).astype("<i8").tobytes()) == LOGARITHMS


def test_a_line_with_more_than_expected_says_so() -> None:
    """Twice as many as expected count as nearly one doubling; as many as expected as none."""
    lines = Lines(2)
    labels = np.array([[0] * 100 + [1] * 100], dtype=np.int32)
    there = np.array([True, False] * 50 + [True, False, False, False] * 25)
    lines.look(labels, there, np.full(200, ONE / 4))
    more, same = lines.evidence(np.array([[0, 1]], dtype=np.int32))[0].tolist()
    assert 0.95 * DOUBLE < more < DOUBLE
    assert same == 0


def test_evidence_of_few_values_is_that_of_many() -> None:
    """Whether lines are asked for one by one or all at once."""
    random = np.random.default_rng(1)
    lines = Lines(50)
    labels = random.integers(0, 50, (2, 400)).astype(np.int32)
    lines.look(labels, random.random(400) < 0.3, np.full(400, ONE / 8))
    every = np.arange(50, dtype=np.int32).reshape(1, -1)
    assert [lines.evidence(every[:, line : line + 1]).item() for line in range(50)] == lines.evidence(every)[0].tolist()


def test_weights_follow_what_came() -> None:
    """Evidence that was right counts for more afterwards, and evidence that was wrong for less."""
    evidence = np.array([[DOUBLE, -DOUBLE] * 500, [-DOUBLE, DOUBLE] * 500], dtype=np.int64)
    odds = np.zeros(1000, dtype=np.int64)
    mixture = Mixture((0.5, 0.5))
    before = mixture.chances(odds, evidence)
    mixture.learn(evidence, before, np.array([1, 0] * 500, dtype=np.int64), 1)
    after = mixture.chances(odds, evidence)
    assert before[0] == before[1] == ONE // 2
    assert after[0] > ONE // 2 > after[1]
