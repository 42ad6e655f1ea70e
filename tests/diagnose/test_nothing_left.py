"""Clients whose rows are all learnt send next to nothing, and models that normalise move some weights by rounding."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from charted import found, trained

from fedvitals.diagnose.chart import NORM, Chart
from fedvitals.diagnose.learnt import all_learnt

BASE: dict[str, Any] = {"data.clients": 8, "train.clients_per_round": 8, "train.rounds": 8, "data.partition": "iid"}


def _with_loss(chart: Chart, client: int, loss: float) -> Chart:
    """The same run, in which one client says that its loss was this from round 4 on."""
    table = chart.participations
    theirs = (table.client == client) & (table.round >= 4)
    return replace(chart, participations=replace(table, loss=np.where(theirs, loss, table.loss)), _shared={})


def test_nothing_is_left_to_learn_where_the_loss_is_gone(tmp_path: Path) -> None:
    """Beside what the run began with; a loss that is not known says nothing."""
    chart = trained(tmp_path, BASE)
    assert not all_learnt(chart).any()
    assert all_learnt(_with_loss(chart, 2, 1e-7)).sum() == 4
    assert not all_learnt(_with_loss(chart, 2, float("nan"))).any()


def test_an_update_of_nothing_is_excused_by_a_loss_of_nothing(tmp_path: Path) -> None:
    """Who sends nothing and says that it has a loss is a free rider; whose loss is gone has no gradient."""
    chart = trained(tmp_path, BASE, [{"kind": "zero-update", "clients": [2], "from_round": 4}])
    (one,) = found(chart, "FL604")
    assert one.clients == ("2",)
    assert found(_with_loss(chart, chart.clients.index("2"), 1e-9), "FL604") == ()


def test_a_bias_before_a_normalisation_is_no_frozen_layer(tmp_path: Path) -> None:
    """Its gradient is rounding, which is zero for some clients in some rounds and for others not."""
    chart = trained(tmp_path, {**BASE, "model.norm": "batch", "train.batch_size": 10})
    assert chart.updates is not None
    layer = [one.name for one in chart.updates.layout.layers].index("1.bias")
    norms = chart.updates.stats[:, layer, NORM]
    table = chart.participations
    theirs = (table.client == chart.clients.index("3")) & (table.round >= 2)  # clients stand as they came
    norms[:] = np.where(theirs, 0.0, 1e-9)
    assert found(replace(chart, _shared={}), "FL409") == ()
    norms[:] = np.where(theirs, 0.0, 1e-2)
    (one,) = found(replace(chart, _shared={}), "FL409")
    assert (one.clients, one.layers) == (("3",), ("1.bias",))


def test_a_single_row_that_cannot_be_normalised_is_no_dropped_batch(tmp_path: Path) -> None:
    """The engine leaves such a batch out for everybody; without a normalisation the same steps are told."""
    chart = trained(tmp_path, {**BASE, "model.norm": "batch", "train.batch_size": 29, "data.partition": "dirichlet"})
    assert (chart.participations.samples % 29 == 1).any()
    assert found(chart, "FL415") == ()
    plain = tuple(
        layout._replace(layers=tuple(layer._replace(trainable=None) for layer in layout.layers))
        for layout in chart.layouts
    )
    assert found(replace(chart, layouts=plain, _shared={}), "FL415")


def test_running_means_are_no_part_of_a_learning_rate(tmp_path: Path) -> None:
    """A normalisation's means may be most of an update's length, and no gradient moves them."""
    chart = trained(tmp_path, {**BASE, "model.norm": "batch", "train.batch_size": 10, "train.rounds": 12})
    assert not [one for one in found(chart, "FL412", "FL413", "FL414") if one.severity != "info"]
