"""Clients whose training goes wrong from round 5 on: who, since when, and nobody else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from charted import alarms, found, trained

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.learning.frozen_layer import _rounding
from fedvitals.vocabulary import Finding, Grade

BASE: dict[str, Any] = {"data.clients": 10, "train.clients_per_round": 10, "train.rounds": 12, "train.epochs": 3}
SPREADS: dict[str, dict[str, Any]] = {
    "iid": {"data.partition": "iid"},
    "one-sided": {"data.partition": "dirichlet", "data.alpha": 0.1},
}
FAULTS = {
    "nan-update": "FL405",
    "nan-batch": "FL405",
    "frozen-layer": "FL409",
    "exploding-lr": "FL412",
    "tiny-lr": "FL413",
    "missing-zero-grad": "FL414",
    "dropped-last-batch": "FL415",
}
CULPRIT = "3"


def _chart(folder: Path, spread: str, kind: str | None, seed: int = 0) -> Chart:
    faults = [] if kind is None else [{"kind": kind, "clients": [CULPRIT], "from_round": 5}]
    return trained(folder, {**BASE, **SPREADS[spread], "seed": seed}, faults)


def _all(chart: Chart) -> list[Finding]:
    """Causes and what stands under them."""
    return [each for one in found(chart, "FL4") for each in (one, *one.symptoms)]


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("kind", FAULTS)
def test_a_faulty_client_is_named_and_nobody_else(tmp_path: Path, kind: str, spread: str) -> None:
    """The finding has the fault's code, the client and the first round; no other client is accused of anything."""
    accused = [one for one in _all(_chart(tmp_path, spread, kind)) if one.clients]
    assert FAULTS[kind] in [one.code for one in accused]
    assert {one.clients for one in accused} == {(CULPRIT,)}
    assert min(next(one for one in accused if one.code == FAULTS[kind]).rounds) == 5


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("seed", [2, 4])
def test_a_healthy_run_raises_no_alarm(tmp_path: Path, spread: str, seed: int) -> None:
    """Neither a client nor the run is warned of."""
    chart = _chart(tmp_path, spread, None, seed)
    assert len(chart.participations) == 120
    assert alarms(chart, "FL4", "FL501", "FL502", "FL503", "FL504") == []


def test_half_of_the_clients_a_round_raises_no_alarm(tmp_path: Path) -> None:
    """Few of many one-sided clients a round make a loss swing, and that is all."""
    changes = {"data.alpha": 0.1, "data.clients": 30, "train.clients_per_round": 15, "train.rounds": 20}
    assert alarms(trained(tmp_path, changes), "FL4", "FL501", "FL502", "FL503", "FL504") == []


def test_one_nan_update_explains_everything_after_it(tmp_path: Path) -> None:
    """The layer is named, the lost model and the lost evaluations stand under it, who received it is not accused."""
    first = found(_chart(tmp_path, "iid", "nan-update"), "FL4")
    assert [one.code for one in first] == ["FL405"]
    cause = first[0]
    assert cause.layers
    assert (cause.clients, cause.rounds) == ((CULPRIT,), (5,))
    assert cause.evidence["model_lost_in_round"] == 6
    assert cause.evidence["received_broken"] == 6 * 10
    assert "FL402" in [one.code for one in cause.symptoms]


def test_a_nan_batch_is_found_to_the_step(tmp_path: Path) -> None:
    """The engine keeps every loss, so the first bad step is exact."""
    chart = _chart(tmp_path, "iid", "nan-batch")
    cause = found(chart, "FL405")[0]
    table = chart.participations
    row = (table.client == chart.clients.index(CULPRIT)) & (table.round == 5)
    assert cause.evidence["bad_step"] == int(table.bad_step[row][0])
    assert cause.evidence["good_step"] is None
    assert f"at step {cause.evidence['bad_step']}" in cause.why


def test_a_frozen_layer_is_named(tmp_path: Path) -> None:
    """The matrix before the last, as the fault freezes it."""
    assert found(_chart(tmp_path, "one-sided", "frozen-layer"), "FL409")[0].layers == ("1.weight",)


def test_a_dropped_batch_is_counted(tmp_path: Path) -> None:
    """Steps taken and expected are told; the batch size can also be read off the others' steps."""
    chart = _chart(tmp_path, "one-sided", "dropped-last-batch")
    told = found(chart, "FL415")[0].evidence
    assert told["expected_steps"] - told["steps"] == 3  # one batch in each of three epochs
    object.__setattr__(chart.run, "config", {})
    assert found(chart, "FL415")[0].evidence["batch_size"] == told["batch_size"] == 32


@pytest.mark.parametrize("kind", ["scaled-update", "sign-flip", "label-flip", "unnormalised-input", "zero-update"])
def test_other_faults_are_left_to_other_rules(tmp_path: Path, kind: str) -> None:
    """What is wrong with an update or with rows is not taken for a learning rate or a missing call."""
    accused = [one.code for one in _all(_chart(tmp_path, "iid", kind)) if one.clients]
    assert accused == []


def test_a_bias_before_a_normalisation_is_moved_by_rounding_alone() -> None:
    """It is left out though one update moved it by more than rounding usually does, and a layer that moves is not."""
    norms = np.tile(np.array([1.0, 1e-9, 1e-2], np.float32), (20, 1))
    norms[3, 1], norms[5:9, 1] = 1e-5, 0.0
    assert _rounding(norms, np.ones(20, bool)).tolist() == [False, True, False]


@pytest.mark.parametrize("seed", [0, 1])
def test_a_multiple_of_an_update_is_no_missing_zero_grad(tmp_path: Path, seed: int) -> None:
    """Ten times as long, of a client whose losses go the way they went: a scaled update heads what is found."""
    changes = {
        "data.clients": 10,
        "data.partition": "iid",
        "train.clients_per_round": 10,
        "train.rounds": 15,
        "train.batch_size": 16,
        "execute.workers": 1,
        "seed": seed,
    }
    chart = trained(tmp_path, changes, [{"kind": "scaled-update", "clients": [4], "from_round": 5, "strength": 10.0}])
    first, *rest = found(chart, "FL4", "FL6")
    assert (first.code, first.clients) == ("FL602", ("4",))
    assert [(one.code, one.grade) for one in rest] in ([], [("FL414", Grade.SUSPECT)])


def test_a_layer_that_was_frozen_for_a_while_is_named_for_that_while(tmp_path: Path) -> None:
    """Four rounds of fifteen, with their end; twice only is nothing."""
    fault = {"kind": "frozen-layer", "clients": [int(CULPRIT)], "from_round": 4}
    changes = {**BASE, **SPREADS["iid"], "train.rounds": 15}
    (one,) = found(trained(tmp_path / "four", changes, [{**fault, "until_round": 7}]), "FL409")
    assert (one.clients, one.rounds) == ((CULPRIT,), (4, 5, 6, 7))
    assert "from round 4 until round 7; in the same rounds" in one.why
    assert found(trained(tmp_path / "two", changes, [{**fault, "until_round": 5}]), "FL409") == ()
