"""Gradients of several small batches, added up: the same training as with one large batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_jobs import EXECUTORS, apart, recorded, run, small, with_file

FLOAT_ERROR = 2e-5  # of sums in another order, over two rounds


def _apart(large: int, small_batch: int, executor: str, **changes: Any) -> float:
    """How far the job in small batches ends from the one in large batches."""
    times = large // small_batch
    whole = run(small({"train.batch_size": large, **changes}, executor=executor))
    parts = run(small({"train.batch_size": small_batch, "train.accumulate": times, **changes}, executor=executor))
    assert whole.accuracy is not None
    return apart(whole, parts)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"train.momentum": 0.9, "train.clip": 0.5, "train.weight_decay": 0.01, "train.proximal": 0.1},
        {"model.norm": "group", "train.epochs": 1},  # norms of eight values make more of float errors with every step
        {"model.kind": "cnn", "data.source": "pictures"},
        {"model.kind": "gru", "data.source": "tokens"},
        {"faults": [{"kind": "dropped-last-batch", "clients": [0, 1, 2]}]},
        {"faults": [{"kind": "missing-zero-grad", "clients": [0, 1, 2]}]},
        {"faults": [{"kind": "label-flip", "clients": [0, 1, 2]}]},
    ],
    ids=lambda changes: "-".join(str(value) for value in changes.values())[:40] or "mlp",
)
def test_small_batches_make_a_large_one(executor: str, changes: dict[str, Any], tmp_path: Path) -> None:
    """8 x 4 rows a step end where 32 rows a step end, on every executor, whatever SGD does with the gradient."""
    assert _apart(32, 8, executor, **with_file(changes, tmp_path)) < FLOAT_ERROR


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 9), st.integers(2, 6), st.sampled_from(("sequential", "vectorised")))
def test_any_sizes_do(size: int, times: int, executor: str) -> None:
    """Whatever is left over in the last batch of the last step counts by its rows."""
    assert _apart(size * times, size, executor, **{"train.rounds": 1}) < FLOAT_ERROR


def test_another_number_of_rows_a_step_is_another_training() -> None:
    """The comparison would see a difference: 8 rows a step end elsewhere than 32."""
    one, other = run(small({"train.batch_size": 32})), run(small({"train.batch_size": 8}))
    assert apart(one, other) > 100 * FLOAT_ERROR


def test_steps_and_losses_are_those_of_the_large_batch(tmp_path: Path) -> None:
    """What is recorded: as many steps, and each step's loss over all its rows."""
    found = []
    for name, size, times in (("large", 32, 1), ("parts", 8, 4)):
        run(small({"train.batch_size": size, "train.accumulate": times}), tmp_path / name)
        with recorded(tmp_path / name) as reader:
            some = sorted(reader.participations(), key=lambda one: (one.round, one.client))
            found.append([(one.client, one.steps, float(one.loss or 0.0)) for one in some])
    assert [one[:2] for one in found[0]] == [one[:2] for one in found[1]]
    np.testing.assert_allclose([one[2] for one in found[0]], [one[2] for one in found[1]], rtol=1e-4)
