"""Real data, where it is at hand beside the repository: from file to federation to a first answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from fedvitals.errors import DataError
from fedvitals.train.build import build
from fedvitals.train.job import Job
from fedvitals.train.models import build_model

DATA = Path(__file__).parents[3] / "shared" / "data"


def _source(name: str) -> str:
    path = DATA / name / f"{name}.npz"
    if not path.is_file():
        pytest.skip(f"the data set {name} is not beside the repository")
    return str(path)


def _job(name: str, kind: str, **data: Any) -> Job:
    return Job.from_dict({"data": {"source": _source(name), **data}, "model": {"kind": kind}})


def test_mnist_by_writer() -> None:
    """539 real writers; the ten thousand test images of other people are the test."""
    job = _job("mnist", "cnn", partition="natural", clients=0)
    federation = build(job)
    assert len(federation.clients) == 539
    assert (federation.input_shape, federation.kind, federation.classes) == ((1, 28, 28), "image", 10)
    assert (len(federation.test_rows), len(federation.x)) == (10_000, 70_000)
    assert sum(len(a) + len(b) for a, b in zip(federation.train_rows, federation.holdout_rows, strict=True)) == 60_000
    assert 0.1 < float(federation.x.mean()) < 0.2
    assert build_model(job, federation)(federation.x[:2]).shape == (2, 10)


def test_a_few_writers_take_little_room() -> None:
    """Rows of writers who were not asked for are not kept."""
    federation = build(_job("mnist", "mlp", partition="natural", clients=10))
    assert len(federation.x) < 11_500
    assert federation.input_shape == (784,)


def test_shakespeare_by_role() -> None:
    """Tokens of 63 characters, clients called after their roles."""
    job = _job("shakespeare", "gru", partition="natural", clients=20)
    federation = build(job)
    assert (federation.kind, federation.vocabulary, federation.classes) == ("tokens", 63, 63)
    assert federation.x.dtype == torch.int64
    assert "1henryiv: FALSTAFF" in federation.clients
    assert build_model(job, federation)(federation.x[:2]).shape == (2, 63)


def test_smartwatch_by_subject() -> None:
    """Float sequences of 128 steps and six channels, one client a subject."""
    job = _job("smartwatch_exercise", "gru", partition="natural", clients=0)
    federation = build(job)
    assert (federation.input_shape, federation.kind, federation.classes) == ((128, 6), "sequence", 7)
    assert len(federation.clients) == 10
    assert build_model(job, federation)(federation.x[:2]).shape == (2, 7)


def test_fashion_has_no_clients_of_its_own() -> None:
    """It can be dealt out, but not naturally."""
    with pytest.raises(DataError, match="needs an array `client`"):
        build(_job("fashion_mnist", "cnn", partition="natural"))
    federation = build(_job("fashion_mnist", "mlp", partition="shards"))
    held = [federation.y[rows].unique().numel() for rows in federation.train_rows]  # type: ignore[no-untyped-call]  # torch's own
    assert max(held) <= 4


def test_cifar_is_in_colour() -> None:
    """Channels come first."""
    assert build(_job("cifar10_subset", "cnn", partition="iid")).input_shape == (3, 32, 32)


def test_sentences_are_refused_with_a_way_out() -> None:
    """Text is no number; the error says what to make of it."""
    with pytest.raises(DataError, match=r"x_train holds text .* turn each text into a row of token numbers"):
        build(_job("sentiment_sentences", "gru", partition="natural", clients=0))
