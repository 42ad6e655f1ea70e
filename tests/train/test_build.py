"""A federation: rows, clients, held-out and test rows, and the digest that names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedvitals.errors import JobError
from fedvitals.train.build import build
from fedvitals.train.federation import Federation
from fedvitals.train.job import Job


def _built(**data: Any) -> Federation:
    return build(Job.from_dict({"data": data}))


@pytest.mark.parametrize("partition", ["iid", "dirichlet", "shards", "quantity"])
def test_every_row_has_one_place(partition: str) -> None:
    """Training, held-out and test rows are all rows, each once; everyone has at least `min_rows`."""
    federation = _built(partition=partition)
    places = torch.cat([*federation.train_rows, *federation.holdout_rows, federation.test_rows])
    assert sorted(places.tolist()) == list(range(1797))
    assert federation.clients == tuple(str(index) for index in range(20))
    pairs = zip(federation.train_rows, federation.holdout_rows, strict=True)
    assert all(len(train) + len(held) >= 8 and len(held) >= 1 for train, held in pairs)
    assert (federation.x.dtype, federation.y.dtype) == (torch.float32, torch.int64)


def test_the_same_job_gives_the_same_federation() -> None:
    """Bit for bit, and its digest tells a change of seed, of partition, of scale and of holdout."""
    first, again = _built(), _built()
    assert torch.equal(first.x, again.x)
    assert all(torch.equal(a, b) for a, b in zip(first.train_rows, again.train_rows, strict=True))
    others = [
        build(Job(seed=1)).digest,
        _built(alpha=0.4).digest,
        _built(scale="none").digest,
        _built(holdout=0.3).digest,
    ]
    assert first.digest == again.digest
    assert len(first.digest) == 64
    assert len({first.digest, *others}) == 5


def test_no_holdout() -> None:
    """A share of 0 keeps nothing back."""
    federation = _built(holdout=0)
    assert all(len(rows) == 0 and rows.dtype == torch.int64 for rows in federation.holdout_rows)


def test_synthetic_natural_clients_have_their_own_rows() -> None:
    """Each has exactly the rows that were made for it, whatever the number of clients."""
    few, many = (_built(source="synthetic", partition="natural", clients=n, rows=50, holdout=0.2) for n in (5, 9))
    assert [len(rows) for rows in few.train_rows] == [40] * 5
    assert torch.equal(few.x[few.train_rows[3]], many.x[many.train_rows[3]])


def _npz(folder: Path, **more: object) -> str:
    rng = np.random.default_rng(0)
    client = np.repeat([0, 1, 2, 3], [20, 4, 30, 10])
    x = np.arange(64, dtype=np.float32)[:, None] / 64 + rng.normal(size=(64, 2)).astype(np.float32) * 0
    y = np.arange(64) % 3
    path = folder / "rows.npz"
    arrays = {"x_train": x, "y_train": y, "x_test": x[:7] + 2, "y_test": y[:7], "client": client, **more}
    np.savez(path, **{name: np.asarray(array) for name, array in arrays.items()})  # type: ignore[arg-type]  # no key is allow_pickle
    return str(path)


def test_natural_clients_keep_their_names_and_only_their_rows(tmp_path: Path) -> None:
    """Names come from the file; rows of clients that were left out are not kept; the file's test rows are the test."""
    source = _npz(tmp_path, client_names=["ann", "bob", "cid", "dan"])
    job = {"data": {"source": source, "partition": "natural", "clients": 2}, "train": {"clients_per_round": 2}}
    federation = build(Job.from_dict(job))
    assert federation.clients == ("ann", "cid")
    assert len(federation.x) == 50 + 7
    mine = torch.cat([federation.train_rows[1], federation.holdout_rows[1]])
    assert sorted((federation.x[mine, 0] * 64).tolist()) == list(range(24, 54))
    assert federation.x[federation.test_rows].min() >= 2


def test_names_that_are_not_unique_or_empty(tmp_path: Path) -> None:
    """Two clients of one name are told apart by their numbers; without names the numbers are the ids."""
    natural = {"partition": "natural", "clients": 0}
    for names, ids in ({"client_names": ["x", "y", "x", ""]}, ("x (0)", "x (2)", "3 (3)")), ({}, ("0", "2", "3")):
        data = {"source": _npz(tmp_path, **names), **natural}
        assert build(Job.from_dict({"data": data, "train": {"clients_per_round": 2}})).clients == ids


def test_the_digest_tells_where_one_client_ends(tmp_path: Path) -> None:
    """The same rows in the same order, cut elsewhere, are another federation."""
    digests = set()
    for first in (20, 30, 44):
        source = _npz(tmp_path, client=np.repeat([0, 1], [first, 64 - first]))
        data = {"source": source, "partition": "natural", "clients": 0, "holdout": 0}
        digests.add(build(Job.from_dict({"data": data, "train": {"clients_per_round": 1}})).digest)
    assert len(digests) == 3


def test_clients_of_one_size_hold_out_other_places() -> None:
    """Which rows are kept back is drawn for each client, not once for all."""
    federation = _built(source="synthetic", partition="natural", clients=5, rows=50)
    places = {tuple((rows - 50 * index).tolist()) for index, rows in enumerate(federation.holdout_rows)}
    assert len(places) == 5


def test_a_cohort_larger_than_the_clients_that_the_data_has(tmp_path: Path) -> None:
    """With all natural clients the number is known only now."""
    job = {"data": {"source": _npz(tmp_path), "partition": "natural", "clients": 0}}
    with pytest.raises(JobError, match=r"clients_per_round = 5, but .* gives 3 clients; right is at most 3"):
        build(Job.from_dict(job))
