"""Dealing rows to clients: nothing lost, nothing doubled, nobody short, the same every time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedvitals.errors import DataError
from fedvitals.train.partition import Numbers, hold_out, partition
from fedvitals.train.sections import DataSpec

DEALT = ("iid", "dirichlet", "shards", "quantity")


@given(
    way=st.sampled_from(DEALT),
    clients=st.integers(1, 40),
    least=st.integers(1, 6),
    spare=st.integers(0, 300),
    classes=st.integers(2, 12),
    alpha=st.sampled_from([5e-324, 1e-12, 1e-3, 0.1, 1.0, 1e5]),
    sigma=st.sampled_from([0.0, 1.0, 10.0]),
    shards=st.integers(1, 5),
    seed=st.integers(0, 2**63 - 1),
)
def test_every_row_goes_to_one_client_and_nobody_is_short(
    way: str,
    clients: int,
    least: int,
    spare: int,
    classes: int,
    alpha: float,
    sigma: float,
    shards: int,
    seed: int,
) -> None:
    """For every way, size and skew: a true partition, at least `min_rows` each, and repeatable."""
    y = np.random.default_rng(seed).integers(0, classes, clients * least + spare)
    data = DataSpec(partition=way, clients=clients, min_rows=least, alpha=alpha, sigma=sigma, shards_per_client=shards)
    dealt = partition(data, y, seed)
    assert list(dealt) == list(range(clients))
    assert sorted(np.concatenate(list(dealt.values())).tolist()) == list(range(len(y)))
    assert min(len(rows) for rows in dealt.values()) >= least
    again = partition(data, y, seed)
    assert all(np.array_equal(dealt[who], again[who]) for who in dealt)


def _labels(rows: int = 2000) -> Numbers:
    return np.random.default_rng(1).integers(0, 10, rows)


def _skew(dealt: dict[int, Numbers], y: Numbers) -> float:
    """Mean share of a client's most frequent class."""
    return float(np.mean([np.bincount(y[rows]).max() / len(rows) for rows in dealt.values()]))


def test_other_seeds_deal_otherwise() -> None:
    """The seed decides who gets what."""
    data = DataSpec(partition="iid")
    assert not np.array_equal(partition(data, _labels(), 1)[0], partition(data, _labels(), 2)[0])


def test_alpha_governs_the_skew() -> None:
    """A small alpha gives one-sided clients, a large one the mix of the whole."""
    y = _labels()
    skews = [_skew(partition(DataSpec(alpha=alpha), y, 3), y) for alpha in (0.05, 0.5, 1000.0)]
    assert skews[0] > skews[1] + 0.1 > skews[2] + 0.2
    assert skews[2] < 0.2


def test_iid_sizes_are_equal() -> None:
    """Sizes differ by one at most."""
    sizes = {len(rows) for rows in partition(DataSpec(partition="iid", clients=7), _labels(), 1).values()}
    assert sizes == {285, 286}


def test_shards_bound_the_classes() -> None:
    """Two shards reach over few classes: with balanced labels at most two each."""
    y = np.repeat(np.arange(10), 200)
    dealt = partition(DataSpec(partition="shards", clients=20), y, 1)
    assert max(len(np.unique(y[rows])) for rows in dealt.values()) == 2
    assert {len(rows) for rows in dealt.values()} == {100}


def test_quantity_skews_sizes_only() -> None:
    """Sizes spread with sigma, class mixes do not."""
    y = _labels(20_000)
    even = partition(DataSpec(partition="quantity", sigma=0.0), y, 1)
    uneven = partition(DataSpec(partition="quantity", sigma=1.5), y, 1)
    assert {len(rows) for rows in even.values()} == {1000}
    sizes = sorted(len(rows) for rows in uneven.values())
    assert sizes[-1] > 10 * sizes[0]
    largest = max(uneven.values(), key=len)
    assert np.bincount(y[largest]).max() / len(largest) < 0.13


def test_natural_takes_the_first_clients_with_enough_rows() -> None:
    """Clients too small are passed over; 0 takes all the others."""
    client = np.repeat([9, 4, 7, 2], [10, 3, 8, 12])
    y = np.zeros(len(client), dtype=np.int64)
    dealt = partition(DataSpec(source="a.npz", partition="natural", clients=2), y, 1, client)
    assert list(dealt) == [2, 7]
    assert all((client[rows] == who).all() for who, rows in dealt.items())
    everyone = partition(DataSpec(source="a.npz", partition="natural", clients=0), y, 1, client)
    assert {who: len(rows) for who, rows in everyone.items()} == {2: 12, 7: 8, 9: 10}


def test_too_many_clients_are_refused_with_what_would_fit() -> None:
    """The error computes the largest numbers that would do."""
    with pytest.raises(DataError, match=r"need 160 rows, but there are 100; .* data.clients = 12 or data.min_rows = 5"):
        partition(DataSpec(), _labels(100), 1)
    with pytest.raises(DataError, match=r"need 30 rows, but there are 20; right would be data.clients = 20$"):
        partition(DataSpec(clients=30, min_rows=1), _labels(20), 1)


def test_natural_without_clients_or_with_too_few_is_refused() -> None:
    """It says what is missing, or how many there are."""
    data = DataSpec(source="a.npz", partition="natural", clients=3)
    with pytest.raises(DataError, match="needs an array `client`"):
        partition(data, _labels(), 1)
    with pytest.raises(DataError, match=r"1 of its 2 clients have data.min_rows = 8 .* ask for at most 1"):
        partition(data, _labels(12), 1, np.repeat([0, 1], [10, 2]))


@given(size=st.integers(1, 200), share=st.floats(0.0, 0.9), seed=st.integers(0, 1000))
def test_hold_out_splits_a_clients_rows(size: int, share: float, seed: int) -> None:
    """Every row is on one side; something is left to train on; five rows always spare one."""
    rows = np.arange(100, 100 + size)
    train, held = hold_out(rows, share, seed, 3)
    assert sorted([*train.tolist(), *held.tolist()]) == rows.tolist()
    assert len(train) >= 1
    if share > 0 and size >= 5:
        assert len(held) == min(max(round(share * size), 1), size - 1)
    else:
        assert len(held) == 0
