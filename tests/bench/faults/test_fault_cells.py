"""A cell of the fault bench is a training whose truth is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fedvitals.bench.charted import charted
from fedvitals.bench.faults.cells import Cell, job_of, played, prepared
from fedvitals.bench.faults.problems import FOLDER_VARIABLE, PROBLEMS, draw_rows
from fedvitals.bench.faults.truth import truth_of
from fedvitals.diagnose.chart import NORM
from fedvitals.settings import Settings
from fedvitals.train.sections import DataSpec


def test_a_faulty_cell_is_charted_with_the_truth_about_it() -> None:
    """The clients that are called bad are those whose updates are zero, from the round that is named."""
    run = played(Cell("digits", "dirichlet-1.0", 10, 1.0, "zero-update", bad="3", from_round=5))
    chart = run.chart
    assert chart.updates is not None
    zero = (chart.updates.stats[:, :, NORM] == 0).all(axis=1)
    table = chart.participations
    senders = set(zip(chart.names(table.client[zero]), table.round[zero].tolist(), strict=True))
    assert len(run.bad) == 3
    assert senders == {(client, number) for client, rounds in run.struck.items() for number in rounds}
    assert all(rounds == tuple(range(5, 20)) for rounds in run.struck.values())
    assert (run.expected, run.kind) == ("FL604", "zero-update")


def test_a_clean_cell_has_nobody_to_find() -> None:
    """And half of the clients take part in each of its rounds."""
    run = played(Cell("synthetic", "iid", 10, 0.5))
    assert not run.bad
    assert run.expected == ""
    assert [len(rows) for _, rows in run.chart.cohorts] == [5] * 30


def test_a_fault_that_changes_nothing_makes_nobody_bad() -> None:
    """A client whose rows all fit into one batch has no last batch to drop."""
    run = played(Cell("digits", "iid", 100, 1.0, "dropped-last-batch", bad="3"))
    assert run.bad == frozenset()
    assert set(run.hit.values()) == {0.0}


@pytest.mark.parametrize(("fault", "seen"), [("exploding-lr", False), ("sign-flip", False), ("zero-update", True)])
def test_nobody_is_to_be_found_by_what_is_sent_from_a_model_of_nan(fault: str, seen: bool, tmp_path: Path) -> None:
    """With a model that is not finite a flip sends NaN, as it would have without; a free rider still sends nothing."""
    cell = Cell("digits", "iid", 10, 1.0, fault, bad="1")
    training = prepared(cell)
    training.server.model.weights.fill_(torch.nan)
    chart = charted(training, Settings(dir=str(tmp_path))).chart
    assert bool(truth_of(training, chart).struck) is seen


def test_the_share_of_rows_that_a_flip_hits_is_known() -> None:
    """Every row for a full flip, about a third of them for a third of the classes."""
    whole = played(Cell("digits", "iid", 10, 1.0, "label-flip", bad="1"))
    third = played(Cell("digits", "iid", 10, 1.0, "label-flip", "third", bad="1"))
    assert set(whole.hit.values()) == {1.0}
    assert all(0.15 < share < 0.45 for share in third.hit.values())


def test_the_place_of_a_numeric_fault_is_known() -> None:
    """The layer that holds the NaN, and the step in which a NaN row was first trained on, as the record shows them."""
    update = played(Cell("digits", "iid", 10, 1.0, "nan-update", bad="1", from_round=5))
    batch = played(Cell("digits", "iid", 10, 1.0, "nan-batch", bad="1", from_round=5))
    for run in (update, batch):
        assert len(run.bad) == 1
    (client,) = update.bad
    updates, table = update.chart.updates, update.chart.participations
    assert updates is not None
    row = np.flatnonzero((table.client == update.chart.clients.index(client)) & (table.round == 5))[0]
    layers = [layer.name for layer, bad in zip(updates.layout.layers, updates.nonfinite[row], strict=True) if bad]
    assert update.layers == {client: tuple(layers)}
    (client,) = batch.bad
    table = batch.chart.participations
    row = np.flatnonzero((table.client == batch.chart.clients.index(client)) & (table.round == 5))[0]
    assert batch.steps == {client: int(table.bad_step[row])}


def test_the_same_cell_is_the_same_job_and_another_seed_another() -> None:
    """Bad clients included: no id is always the guilty one."""
    cells = [Cell("digits", fault="crash", bad="1", seed=seed) for seed in range(12)]
    assert job_of(cells[3]) == job_of(Cell("digits", fault="crash", bad="1", seed=3))
    assert len({cell.bad_clients() for cell in cells}) > 3
    assert len({cell.key for cell in cells}) == 12


def _npz(folder: Path) -> None:
    """A small MNIST of 40 writers with 25 rows each, in the layout of the real one."""
    random = np.random.default_rng(0)
    (folder / "mnist").mkdir()
    np.savez(
        folder / "mnist" / "mnist.npz",
        x_train=random.integers(0, 255, (1000, 28, 28)).astype(np.uint8),
        y_train=random.integers(0, 10, 1000).astype(np.uint8),
        x_test=random.integers(0, 255, (50, 28, 28)).astype(np.uint8),
        y_test=random.integers(0, 10, 50).astype(np.uint8),
        client=np.repeat(np.arange(40), 25) * 7,
    )


def test_natural_clients_are_drawn_and_keep_their_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another draw takes other writers; ids count from 0; the pictures have half the side."""
    _npz(tmp_path)
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    spec = DataSpec(source="some.module:rows", partition="natural", clients=10)
    first, again, other = (draw_rows(PROBLEMS["mnist"], spec, draw) for draw in (1, 1, 2))
    assert first["x_train"].shape == (250, 14, 14)
    assert np.unique(first["client"], return_counts=True)[1].tolist() == [25] * 10
    assert first["client"].max() == 9
    np.testing.assert_array_equal(first["x_train"], again["x_train"])
    assert not np.array_equal(first["x_train"], other["x_train"])


def test_data_that_is_not_there_is_said_to_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Digits and synthetic always are."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    missing = {name for name, one in PROBLEMS.items() if one.missing}
    assert missing == set(PROBLEMS) - {"digits", "synthetic"}
    _npz(tmp_path)
    assert not PROBLEMS["mnist"].missing
