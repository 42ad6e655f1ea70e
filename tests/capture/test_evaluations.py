"""Evaluations of many clients: told at once, they are the same as told one by one."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from watching import read, round_of

CLIENTS, LOSSES, ACCURACIES, SAMPLES = ["a", 7, "c"], [0.5, torch.tensor(0.25), float("nan")], [1.0, None, 0], [3, 4, 5]


def evaluations(name: str) -> list[tuple[Any, ...]]:
    with read(name) as reader:
        return [one._replace(at_ns=0)[:-1] for one in reader.evaluations()]


def test_many_at_once_are_as_one_by_one() -> None:
    """Names become text, tensors numbers; what is missing stays missing."""
    with round_of(nn.Linear(2, 2), name="singly") as rnd:
        for client, loss, accuracy, rows in zip(CLIENTS, LOSSES, ACCURACIES, SAMPLES, strict=True):
            rnd.evaluated(loss=loss, accuracy=accuracy, client=client, samples=rows, split="holdout")
    with round_of(nn.Linear(2, 2), name="together") as rnd:
        rnd.evaluated_each(CLIENTS, losses=LOSSES, accuracies=ACCURACIES, samples=SAMPLES)
    found, expected = evaluations("together"), evaluations("singly")
    assert len(found) == len(CLIENTS)
    assert str(found) == str(expected)  # NaN is the same as itself here
    assert [one[3] for one in found] == ["a", "7", "c"]


def test_columns_of_different_lengths_harm_nobody() -> None:
    """One warning, and the round is recorded all the same."""
    with round_of(nn.Linear(2, 2), name="odd") as rnd:
        rnd.evaluated_each(["a", "b"], losses=[1.0], accuracies=[1.0, 1.0], samples=[1, 1])
    assert evaluations("odd") == []
    with read("odd") as reader:
        assert [one.end_ns is not None for one in reader.rounds()] == [True]
