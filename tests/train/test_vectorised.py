"""A cohort as one program: its table of steps, unequal clients, and what is looked at on the way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_jobs import small
from torch import Tensor

from fedvitals.faults.work import LocalWork
from fedvitals.train.batched.schedule import Schedule, most_steps_first
from fedvitals.train.engine import Training
from fedvitals.train.orders import batch_orders
from fedvitals.train.trained import Trained, joined, part

counts = st.lists(st.integers(1, 20), min_size=1, max_size=5)


def _work(name: str, client: int = 0, **plan: Any) -> LocalWork:
    return LocalWork(client=client, name=name, attempt=0, round=0, lr=0.1, **plan)


def _batches(work: LocalWork, rows: int, epochs: int, batch: int) -> list[list[int]]:
    """A client's batches as a plain loop would cut them."""
    usable = rows - rows % batch if work.drop_last and rows > batch else rows
    orders = batch_orders(7, [work], [rows], epochs)[0]
    return [order[start : min(start + batch, usable)].tolist() for order in orders for start in range(0, usable, batch)]


@given(counts, st.integers(1, 3), st.integers(1, 7), st.lists(st.booleans(), min_size=5, max_size=5))
def test_the_table_of_steps_is_every_clients_loop(rows: list[int], epochs: int, batch: int, drops: list[bool]) -> None:
    """Each step holds each active client's next batch, by place and by row number, with equal shares that add up to
    one; clients at work are the first ones, and who has no more steps is never touched again."""
    works = [_work(str(n), n, drop_last=drops[n]) for n in range(len(rows))]
    order = most_steps_first(works, rows, batch)
    works, sizes = [works[i] for i in order], [rows[i] for i in order]
    numbers = [np.arange(size) + 100 * place for place, size in enumerate(sizes)]
    schedule = Schedule(7, works, list(numbers), sizes, epochs, batch)
    expected = [_batches(work, size, epochs, batch) for work, size in zip(works, sizes, strict=True)]
    assert schedule.steps.tolist() == [len(one) for one in expected]
    assert len(schedule) == max(len(one) for one in expected)
    for number in range(len(schedule)):
        step = schedule.step(number)
        assert step.active == sum(len(one) > number for one in expected)
        for client in range(step.active):
            wanted = expected[client][number]
            assert _counted(step.own, step.share, client) == wanted
            assert _counted(step.rows, step.share, client) == [row + 100 * client for row in wanted]


def _counted(table: Tensor, share: Tensor | float, client: int) -> list[int]:
    """The entries of a client's line that have a share, after a look at the shares."""
    if not isinstance(share, Tensor):
        assert share == pytest.approx(1.0 / table.shape[1])
        return [int(value) for value in table[client]]
    assert float(share[client].sum()) == pytest.approx(1.0)
    used = share[client] > 0
    assert len(set(share[client][used].tolist())) == 1
    return [int(value) for value in table[client][used]]


def test_each_client_is_looked_at_where_it_was_asked_for() -> None:
    """Plans with other steps: every client's gradients at its own steps, as far as it has any."""
    training = Training.prepare(small({"data.partition": "quantity", "train.epochs": 1}, executor="vectorised"))
    works = [
        _work("0", 0, sample_steps=(0, 2)),
        _work("1", 1, sample_steps=(1,)),  # it has but one
        _work("2", 2),
        _work("3", 3, sample_steps=(0, 1000)),
    ]
    alone = Training.prepare(small({"data.partition": "quantity", "train.epochs": 1}))
    for result in training.executor.run(works, training.model.weights.clone(), {}):
        assert isinstance(result, Trained)
        found = _sampled(result)
        assert found.keys() == {("0", 0), ("0", 2), ("3", 0)}
        for single in alone.executor.run(works, alone.model.weights.clone(), {}):
            assert isinstance(single, Trained)
            for key, stats in _sampled(single).items():
                np.testing.assert_allclose(found[key], stats, rtol=1e-4)


def _sampled(result: Trained) -> dict[tuple[str, int], np.ndarray]:
    return {
        (result.works[slot].name, sample.step): sample.stats[row]
        for sample in result.sampled
        for row, slot in enumerate(sample.slots)
    }


def test_a_part_of_a_result_is_those_clients() -> None:
    """Taken apart and joined again, in another order, everything stays with its client."""
    training = Training.prepare(small({"data.partition": "quantity"}, executor="vectorised"))
    works = [_work(str(n), n, sample_steps=(0, n + 1)) for n in range(4)]
    (whole,) = training.executor.run(works, training.model.weights.clone(), {})
    assert isinstance(whole, Trained)
    again = joined([part(whole, [3]), part(whole, [1, 0]), part(whole, [2])])
    assert [work.name for work in again.works] == [whole.works[i].name for i in (3, 1, 0, 2)]
    for here, there in enumerate((3, 1, 0, 2)):
        assert torch.equal(again.updates[here], whole.updates[there])
        assert np.array_equal(again.losses[here], whole.losses[there], equal_nan=True)
        assert (again.steps[here], again.samples[here]) == (whole.steps[there], whole.samples[there])
        assert (again.end_ns[here], again.slots[here]) == (whole.end_ns[there], whole.slots[there])
    assert _sampled(again).keys() == _sampled(whole).keys()
    assert all(np.array_equal(stats, _sampled(again)[key]) for key, stats in _sampled(whole).items())


def test_memory_of_one_round_is_not_the_next_ones() -> None:
    """The matrices are kept from round to round: what was handed out before must not change."""
    training = Training.prepare(small(executor="vectorised"))
    works = [_work(str(n), n) for n in range(4)]
    weights = training.model.weights.clone()
    (first,) = training.executor.run(works, weights, {})
    assert isinstance(first, Trained)
    kept = first.updates.clone()
    (second,) = training.executor.run(works, weights + 1.0, {})
    assert isinstance(second, Trained)
    assert torch.equal(first.updates, kept)
    assert not torch.equal(second.updates, kept)
