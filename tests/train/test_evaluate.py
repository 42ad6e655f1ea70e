"""Judging models."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedvitals.train.evaluate import evaluate, evaluate_groups

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(50, 6, generator=GENERATOR)
Y = torch.randint(0, 4, (50,), generator=GENERATOR)
MODEL = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 4))


@settings(deadline=None, max_examples=30)
@given(rows=st.lists(st.integers(0, 49), min_size=1, max_size=60), batch=st.integers(1, 64))
def test_loss_and_accuracy_are_the_means_over_rows(rows: list[int], batch: int) -> None:
    """Whatever the batch size, they are what one plain pass without dropout gives."""
    with torch.no_grad():
        logits = MODEL.eval()(X[rows])
    loss, accuracy = evaluate(MODEL, X, Y, torch.tensor(rows), batch)
    assert loss == pytest.approx(float(F.cross_entropy(logits, Y[rows])), rel=1e-5)
    assert accuracy == pytest.approx(float((logits.argmax(1) == Y[rows]).double().mean()))


@settings(deadline=None, max_examples=30)
@given(groups=st.lists(st.lists(st.integers(0, 49), max_size=9), max_size=6), batch=st.integers(1, 20))
def test_groups_are_judged_as_if_one_by_one(groups: list[list[int]], batch: int) -> None:
    """One pass over all groups gives each the figures of its own pass; an empty one NaN."""
    rows = [torch.tensor(group, dtype=torch.int64) for group in groups]
    losses, accuracies = evaluate_groups(MODEL, X, Y, rows, batch)
    alone = [evaluate(MODEL, X, Y, group) for group in rows]
    assert losses.tolist() == pytest.approx([loss for loss, _ in alone], rel=1e-5, nan_ok=True)
    assert accuracies.tolist() == pytest.approx([accuracy for _, accuracy in alone], nan_ok=True)


def test_nothing_to_judge_is_nan() -> None:
    """No rows: no figures, and no error."""
    loss, accuracy = evaluate(MODEL, X, Y, torch.empty(0, dtype=torch.int64))
    assert math.isnan(loss)
    assert math.isnan(accuracy)


def test_modes_and_random_numbers_are_left_alone() -> None:
    """Each part keeps its own mode, even when the model raises, and no global random number is drawn."""
    model = nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.5))
    model.train()
    model[1].eval()
    before = torch.random.get_rng_state()
    evaluate(model, X, Y, torch.arange(50))
    with pytest.raises(RuntimeError):
        evaluate(model, X[:, :2], Y, torch.arange(50))
    assert [part.training for part in model.modules()] == [True, True, False]
    assert torch.equal(torch.random.get_rng_state(), before)


def test_logits_that_are_not_finite_are_wrong_not_fatal() -> None:
    """A model of NaN has a NaN loss and no row right; one client's broken rows leave the others' figures alone."""
    broken = nn.Linear(6, 4)
    nn.init.constant_(broken.weight, float("nan"))
    loss, accuracy = evaluate(broken, X, torch.zeros_like(Y), torch.arange(50))
    assert math.isnan(loss)
    assert accuracy == 0.0
    spoilt = X.clone()
    spoilt[3] = float("inf")
    losses, accuracies = evaluate_groups(nn.Linear(6, 4), spoilt, Y, [torch.tensor([3, 4]), torch.tensor([5, 6])])
    assert not math.isfinite(losses[0])
    assert math.isfinite(losses[1])
    assert bool(accuracies.isfinite().all())
