"""What a cohort hands in beside its updates: losses of any shape, numbers of rows in any form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from watching import IDS, by_client, opened, round_of, small_model, stacked


@pytest.mark.parametrize(
    "odd",
    [
        {"step_losses": np.full((4, 2), 7.0)},
        {"step_losses": np.full((3, 2), 7.0), "steps": [2, 2]},
        {"step_losses": [["a", "b"]] * 3},
        {"step_losses": np.full(3, 7.0)},
    ],
)
def test_losses_of_no_shape_cost_nobody_elses(odd: dict[str, Any]) -> None:
    """Nor the rest of what is known of those clients."""
    model = small_model()
    with round_of(model) as rnd:
        opened(rnd, IDS).submit(stacked(model), **odd)
        opened(rnd, [7, 8, 9]).submit(stacked(model), step_losses=np.ones((3, 2), np.float32))
    records = by_client()
    assert [records[client].loss for client in IDS] == [None] * 3
    assert [records[client].loss for client in "789"] == [1.0] * 3
    assert all(one.update_norm for one in records.values())


def test_losses_may_be_lists_and_are_the_recorders_own() -> None:
    """What a loop does to its arrays when they were handed in changes nothing."""
    model = small_model()
    losses = np.ones((3, 2), np.float32)
    with round_of(model) as rnd:
        opened(rnd, IDS).submit(stacked(model), step_losses=losses)
        losses[:] = 99.0
        opened(rnd, [7, 8, 9]).submit(stacked(model), step_losses=[[2.0, 2.0]] * 3, steps=[2, 2, 2])
    records = by_client()
    assert [records[client].loss for client in IDS] == [1.0] * 3
    assert [records[client].loss for client in "789"] == [2.0] * 3


@pytest.mark.parametrize("form", [lambda rows: dict(enumerate(rows)).values(), lambda rows: map(int, rows), np.array])
def test_rows_come_in_any_form(form: Any) -> None:
    """Of what can be gone through once, or be changed later."""
    model = small_model()
    with round_of(model) as rnd:
        opened(rnd, IDS, samples=form([5, 6, 7])).submit(stacked(model))
    assert [by_client()[client].samples for client in IDS] == [5, 6, 7]
