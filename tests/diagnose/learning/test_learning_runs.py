"""What ails a whole run: each is named, nobody is accused, and what follows from it stands under it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from charted import alarms, found, trained

from fedvitals.diagnose.chart import Chart

sys.path.append(str(Path(__file__).parent))  # jobs name the models by their module
ALL: dict[str, Any] = {
    "data.partition": "iid",
    "data.clients": 8,
    "train.clients_per_round": 8,
    "train.rounds": 14,
    "train.epochs": 3,
}


def _run(folder: Path, **changes: Any) -> Chart:
    return trained(folder, {**ALL, **{name.replace("__", "."): value for name, value in changes.items()}})


def _codes(chart: Chart) -> list[str]:
    findings = found(chart, "FL4")
    assert not any(one.clients for one in findings)
    return [one.code for one in findings]


@pytest.mark.parametrize("lr", [5.0, 30.0])
def test_a_rate_too_high_for_all_is_nobodys_fault(tmp_path: Path, lr: float) -> None:
    """The run is told, not a client, and its divergence or standstill follows from it."""
    chart = _run(tmp_path, train__lr=lr)
    assert _codes(chart)[0] == "FL412"


def test_a_rate_too_low_for_all_is_told(tmp_path: Path) -> None:
    """Updates are next to nothing beside the model; the standing loss follows from it."""
    findings = found(_run(tmp_path, train__lr=1e-5), "FL4")
    assert findings[0].code == "FL413"
    assert findings[0].evidence["update_to_model_ratio"] < 1e-4


def test_a_slow_run_is_told_but_not_warned_of(tmp_path: Path) -> None:
    """A loss that falls steadily is information at most."""
    chart = _run(tmp_path, train__lr=0.01)
    assert alarms(chart, "FL4") == []
    assert _codes(chart) == ["FL406"]


@pytest.mark.parametrize(
    ("kind", "told"),
    [("zero", "zero"), ("constant", "constant"), ("huge", "too large"), ("tiny", "too small"), ("dead", "dead")],
)
def test_a_bad_first_model_is_the_cause(tmp_path: Path, kind: str, told: str) -> None:
    """How it is bad is told, and every other finding stands under it."""
    findings = found(_run(tmp_path, model__kind=f"learning_models:{kind}"), "FL4")
    assert [one.code for one in findings] == ["FL401"]
    assert findings[0].evidence["kind"] == told


def test_a_zero_logistic_regression_is_healthy(tmp_path: Path) -> None:
    """With one matrix there is no symmetry to break."""
    assert alarms(_run(tmp_path, model__kind="learning_models:zero_logistic"), "FL4") == []


def test_a_deep_sigmoid_net_vanishes(tmp_path: Path) -> None:
    """The first layers' gradients are a thousandth of the last one's, and nothing is learnt."""
    findings = found(_run(tmp_path, model__kind="learning_models:deep_sigmoid"), "FL4")
    assert [one.code for one in findings] == ["FL408"]
    assert "1.weight" in findings[0].layers
    assert findings[0].evidence["depth_ratio"] < 1e-3


def test_an_explosive_net_is_told(tmp_path: Path) -> None:
    """Weights four times the usual in every layer: the first model is the cause of all that breaks."""
    findings = found(_run(tmp_path, model__kind="learning_models:explosive"), "FL4")
    assert findings[0].code == "FL401"
    assert {"FL402", "FL405", "FL407", "FL412"} & {one.code for one in findings[0].symptoms}


def test_rows_learnt_by_heart_are_a_gap(tmp_path: Path) -> None:
    """Few rows, many features: the evaluation gets worse while the clients' loss goes to nothing."""
    chart = _run(
        tmp_path,
        data__source="synthetic",
        data__rows=12,
        data__features=200,
        model__hidden=[256],
        train__lr=0.5,
        train__epochs=10,
        train__rounds=40,
    )
    gap = next(one for one in found(chart, "FL4") if one.code == "FL411")
    assert gap.evidence["clients_loss"] < 0.1 * gap.evidence["end"]
    assert gap.severity == "warning"


def test_a_server_that_oversteps_diverges(tmp_path: Path) -> None:
    """Eight times the averaged step: no client is wrong, the loss is."""
    assert "FL402" in _codes(_run(tmp_path, server__lr=8.0, train__rounds=20))


def test_zero_grad_missing_everywhere_is_nobodys_own(tmp_path: Path) -> None:
    """Every client's gradients pile up: told once, of the run."""
    chart = trained(tmp_path, ALL, [{"kind": "missing-zero-grad", "share": 1.0}])
    assert "FL414" in _codes(chart)


def test_a_layer_frozen_everywhere_is_told_once(tmp_path: Path) -> None:
    """It never moved in any update."""
    chart = trained(tmp_path, ALL, [{"kind": "frozen-layer", "share": 1.0}])
    assert [(one.clients, one.layers) for one in found(chart, "FL409")] == [((), ("1.weight",))]


def test_batches_dropped_everywhere_are_information(tmp_path: Path) -> None:
    """When all do it, it is a choice."""
    chart = trained(tmp_path, ALL, [{"kind": "dropped-last-batch", "share": 1.0}])
    assert [(one.severity, one.clients) for one in found(chart, "FL415")] == [("info", ())]
