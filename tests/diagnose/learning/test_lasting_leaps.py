"""Whether a leap of a client's rate lasted, as piled gradients make it, or was a few lucky batches."""

from __future__ import annotations

import numpy as np

from fedvitals.diagnose.learning.changes import changes
from fedvitals.diagnose.learning.missing_zero_grad import LASTS, _lasting


def test_only_a_leap_that_stays_lasts() -> None:
    """Of a leap that stays every value counts; of one that falls back too few do; missing values count for nothing."""
    stays = [0.0, 0.1, 0.0, 1.0, 1.1, 0.9, np.nan]
    falls_back = [0.0, 0.1, 0.0, 1.3, 0.4, 0.2, 1.2]
    shares = _lasting(np.array([stays, falls_back]), np.array([3, 3]), np.array([0.97, 0.74]))
    assert shares.tolist() == [1.0, 0.75]
    assert shares[0] >= LASTS > shares[1]


def test_a_history_that_ends_before_its_split_has_no_share() -> None:
    """Nothing after the split: NaN, which is no reason to accuse."""
    shares = _lasting(np.array([[0.0, 0.1, np.nan, np.nan]]), np.array([2]), np.array([1.0]))
    assert np.isnan(shares).all()
    assert not (shares >= LASTS).any()


def test_a_client_that_seems_steady_has_the_noise_of_the_others() -> None:
    """A leap that is many times its own noise and little beside everybody's gets the smaller score."""
    noise = np.random.default_rng(0).normal(size=(9, 12))
    steady = np.array([[0.0, 0.1, 0.0, 0.1, 0.0, 0.1, 1.0, 1.1, 1.0, 1.1, 1.0, 1.1]])
    alone, among = changes(steady, 0.05), changes(np.concatenate([steady, noise]), 0.05)
    assert alone.split[0] == among.split[0] == 6
    assert alone.shift[0] == among.shift[0]
    assert alone.score[0] > 10 > 4 > among.score[0]


def test_a_leap_is_four_participations_long() -> None:
    """The best split of a history whose last three lie high leaves four behind it."""
    late = np.array([[0.0] * 9 + [1.0] * 3])
    assert changes(late, 0.05).split.tolist() == [8]
