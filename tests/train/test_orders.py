"""The order of a client's rows: permutations that belong to (seed, client, attempt, epoch) and to nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedvitals.faults.work import LocalWork
from fedvitals.train.orders import MOST_ROWS, batch_orders

seeds = st.integers(0, 2**63 - 1)
counts = st.lists(st.integers(0, 70), min_size=1, max_size=6)
epochs = st.integers(1, 4)


def _work(name: str, attempt: int = 0) -> LocalWork:
    return LocalWork(client=0, name=name, attempt=attempt, round=0, lr=0.1)


def _cohort(many: int) -> list[LocalWork]:
    return [_work(str(number)) for number in range(many)]


@given(seeds, counts, epochs)
def test_each_epoch_is_all_rows_once(seed: int, rows: list[int], epochs: int) -> None:
    """Every epoch of every client is a permutation of its rows, followed by -1 up to the largest client's."""
    orders = batch_orders(seed, _cohort(len(rows)), rows, epochs)
    assert orders.shape == (len(rows), epochs, max(rows))
    for client, count in enumerate(rows):
        for epoch in orders[client]:
            assert sorted(epoch[:count].tolist()) == list(range(count))
            assert (epoch[count:] == -1).all()


@given(seeds, counts, epochs)
def test_a_client_is_the_same_alone_and_in_company(seed: int, rows: list[int], epochs: int) -> None:
    """Neither the others, nor their rows, nor the order of the cohort, nor the number of epochs has a say."""
    works = _cohort(len(rows))
    together = batch_orders(seed, works, rows, epochs)
    backwards = batch_orders(seed, works[::-1], rows[::-1], epochs)[::-1]
    assert np.array_equal(together, backwards)
    for client, count in enumerate(rows):
        alone = batch_orders(seed, [works[client]], [count], epochs + 1)[0]
        assert np.array_equal(alone[:epochs], together[client, :, :count])


def test_seed_client_attempt_and_epoch_each_count() -> None:
    """Changing any one of them gives another order."""
    base = batch_orders(1, [_work("a")], [64], 2)[0]
    others = [
        batch_orders(2, [_work("a")], [64], 1)[0, 0],
        batch_orders(1, [_work("b")], [64], 1)[0, 0],
        batch_orders(1, [_work("a", attempt=1)], [64], 1)[0, 0],
        base[1],
    ]
    assert not any(np.array_equal(base[0], other) for other in others)


def test_rounds_and_faults_do_not_count() -> None:
    """A client's batches know nothing of the round, of its index, of its learning rate or of being watched."""
    plain = _work("a")
    other = LocalWork(client=9, name="a", attempt=0, round=7, lr=9.0, sample_steps=(0, 1), link_factor=3.0)
    assert np.array_equal(batch_orders(5, [plain], [40], 3), batch_orders(5, [other], [40], 3))


def test_the_order_is_fair() -> None:
    """Over many clients a row is as often first as last: the mean place of each lies in the middle."""
    places = np.argsort(batch_orders(3, _cohort(2000), [10] * 2000, 1)[:, 0], axis=1)
    # The mean of 2,000 places of 0..9 has a standard deviation of 0.064.
    assert np.abs(places.mean(axis=0) - 4.5).max() < 0.32


def test_too_many_rows_are_refused() -> None:
    """The row's number shares 64 bits with its hash; beyond its part the order would be wrong."""
    with pytest.raises(ValueError, match=f"at most {MOST_ROWS}"):
        batch_orders(0, [_work("a")], [MOST_ROWS + 1], 1)
