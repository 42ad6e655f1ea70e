"""How large a run's first updates were."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from fedvitals.profile.updates import first_update_size
from fedvitals.store import SQLiteStore
from fedvitals.vocabulary import STATISTICS, Layer, Layout, Record, Run, Status, UpdateBlock

LAYOUT = Layout(1, (Layer("a", (4,), "float32", 4), Layer("b", (12,), "float32", 12)))


def _size(folder: Path, blocks: list[tuple[int, list[list[float]]]]) -> float | None:
    run = Run("sizes", "sizes", Status.FINISHED, 0, ended_ns=1)
    records: list[Record] = [run, LAYOUT]
    for number, (of_round, norms) in enumerate(blocks, start=1):
        stats = np.zeros((len(norms), len(LAYOUT.layers), len(STATISTICS)), np.float32)
        stats[:, :, STATISTICS.index("norm")] = norms
        records.append(UpdateBlock(number, of_round, 1, stats))
    with closing(SQLiteStore(folder).create(run)) as journal:
        journal.append(records)
    with closing(SQLiteStore(folder).open("sizes")) as reader:
        return first_update_size(reader)


def test_it_is_the_median_of_the_first_rounds_root_mean_squares(tmp_path: Path) -> None:
    """Over all layers of an update; what is not finite or nothing at all does not count."""
    first = [[3.0, 4.0], [6.0, 8.0], [9.0, 12.0], [float("nan"), 1.0], [0.0, 0.0]]
    assert _size(tmp_path, [(0, first), (1, [[1e9, 1e9]])]) == pytest.approx(10.0 / 4.0)


def test_without_any_there_is_no_size(tmp_path: Path) -> None:
    """Nor where all of them are broken."""
    assert _size(tmp_path / "none", []) is None
    assert _size(tmp_path / "broken", [(0, [[float("inf"), 1.0]])]) is None
