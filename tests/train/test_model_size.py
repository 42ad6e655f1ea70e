"""Models too large for the machine are refused before any memory is asked for."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
import torch

from fedvitals.errors import JobError
from fedvitals.train.federation import Federation
from fedvitals.train.job import Job
from fedvitals.train.model_size import weights_of
from fedvitals.train.models import build_model


def federation(*shape: int, tokens: int = 0) -> Federation:
    kinds = {1: "vector", 2: "sequence", 3: "image"}
    x = torch.randint(0, tokens, (4, *shape)) if tokens else torch.randn(4, *shape)
    rows, kind = torch.arange(4), "tokens" if tokens else kinds[len(shape)]
    y = torch.zeros(4, dtype=torch.int64)
    return Federation(x, y, ("0",), (rows,), (rows[:0],), rows[:0], 7, kind, vocabulary=tokens)


@pytest.mark.parametrize(
    ("data", "model"),
    [
        (federation(20), {"hidden": [30, 40]}),
        (federation(20), {"hidden": []}),
        (federation(20), {"kind": "logistic"}),
        (federation(2, 9, 5), {"kind": "cnn", "channels": [3, 4, 5], "kernel": 3, "hidden": [6]}),
        (federation(2, 9, 5), {"hidden": [6], "norm": "batch"}),
        (federation(6, 5), {"kind": "gru", "hidden": [11]}),
        (federation(6, tokens=50), {"kind": "gru", "hidden": [11], "embedding": 9}),
    ],
    ids=str,
)
def test_weights_are_counted_as_they_will_be(data: Federation, model: dict[str, Any]) -> None:
    """All that have two sides or more; what has one is biases and normalisation."""
    job = Job.from_dict({"model": model})
    made = build_model(job, data).parameters()
    assert weights_of(job.model, data) == sum(one.numel() for one in made if one.dim() > 1)


@pytest.mark.parametrize(
    ("data", "model", "said"),
    [
        (federation(64), {"hidden": [65_536] * 32}, r"model\.hidden = \[65536, .*133,148,639,232 weights take"),
        (
            federation(1, 8, 8),
            {"kind": "cnn", "channels": [4096] * 16, "kernel": 31},
            r"model\.channels = \[4096, .* GB to train, and this machine has .* GB; take a smaller one",
        ),
    ],
    ids=["dense", "pictures"],
)
def test_one_that_cannot_be_there_is_refused(data: Federation, model: dict[str, Any], said: str) -> None:
    """Each key is within its limits; together they are a terabyte."""
    tracemalloc.start()
    try:
        with pytest.raises(JobError, match=said):
            build_model(Job.from_dict({"model": model}), data)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
