"""What figures of learning are drawn from: how strongly gradients reach layers, and how clients' losses lie."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from scripted import a_round, profiled, work

from fedvitals.profile.gradients import flow_of
from fedvitals.profile.learning import first_losses
from fedvitals.store import SQLiteStore
from fedvitals.vocabulary import STATISTICS, Layer, Layout, Record, Run, Status, StepBlock, UpdateBlock

LAYOUT = Layout(1, (Layer("a", (4,), "float32", 4), Layer("b", (100,), "float32", 100)))


def _stats(norms: list[list[float]]) -> np.ndarray:
    found = np.zeros((len(norms), len(LAYOUT.layers), len(STATISTICS)), np.float32)
    found[:, :, STATISTICS.index("norm")] = norms
    return found


def test_a_layers_level_is_its_root_mean_square(tmp_path: Path) -> None:
    """In powers of ten, the mean over a column's rounds; what is not finite is counted and not averaged, a round that
    has no column is left out."""
    run = Run("flow", "flow", Status.FINISHED, 0, ended_ns=1)
    records: list[Record] = [
        LAYOUT,
        UpdateBlock(1, 0, 1, _stats([[2.0, 100.0], [20.0, 100.0]])),
        UpdateBlock(2, 1, 1, _stats([[200.0, float("nan")]])),
        UpdateBlock(3, 9, 1, _stats([[1e9, 1e9]])),
        StepBlock(0, 1, ("c",), (0,), (0,), _stats([[0.2, 0.0]])),
    ]
    with closing(SQLiteStore(tmp_path).create(run)) as journal:
        journal.append([run, *records])
    with closing(SQLiteStore(tmp_path).open("flow")) as reader:
        updates = flow_of(reader, LAYOUT, {0: 0, 1: 0}, 2, steps=False)
        steps = flow_of(reader, LAYOUT, {0: 0}, 1, steps=True)
        nothing = flow_of(reader, LAYOUT, {}, 1, steps=True)
    assert updates is not None
    assert updates.steps == 3
    np.testing.assert_allclose(updates.level, [[1.0, np.nan], [1.0, np.nan]], atol=1e-6)
    assert updates.broken.tolist() == [[0, 0], [1, 0]]
    assert steps is not None
    np.testing.assert_allclose(steps.level, [[-1.0], [np.nan]], atol=1e-6)
    assert nothing is None


def test_first_losses_are_quartered_round_by_round(tmp_path: Path) -> None:
    """Of those that are finite; a round in which nobody told one is not there."""
    losses = [(0, value) for value in (1.0, 2.0, 3.0, 4.0, 5.0, float("nan"))] + [(2, 7.0)]
    records: list[Record] = [a_round(number, number, number + 1) for number in range(3)]
    records += [
        work(f"c{place}", number, number + 1, round=number)._replace(first_loss=loss)
        for place, (number, loss) in enumerate(losses)
    ]
    rounds, quarters = first_losses(profiled(tmp_path, records, end=3).timeline)
    assert rounds == [0, 2]
    assert quarters.tolist() == [pytest.approx([2.0, 3.0, 4.0]), pytest.approx([7.0, 7.0, 7.0])]
