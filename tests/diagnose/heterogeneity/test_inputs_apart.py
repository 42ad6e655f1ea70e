"""Inputs of another scale show in the first gradient, which neither a learning rate nor labels lengthen so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from charted import found, trained

from fedvitals.diagnose.chart import Chart
from fedvitals.vocabulary import Grade, Severity

BASE: dict[str, Any] = {
    "data.partition": "iid",
    "data.clients": 12,
    "train.clients_per_round": 12,
    "train.rounds": 9,
}
CULPRITS = ("2", "7")


def _chart(folder: Path, kind: str) -> Chart:
    clients = [int(one) for one in CULPRITS]
    return trained(folder, BASE, [{"kind": kind, "clients": clients, "from_round": 4}])


def test_a_long_first_gradient_tells_of_inputs(tmp_path: Path) -> None:
    """Both are accused by how many times gradient and update are longer, in all rounds from the first struck one on."""
    (one,) = found(_chart(tmp_path, "unnormalised-input"), "FL506")
    assert (set(one.clients), one.grade, one.severity) == (set(CULPRITS), Grade.ACCUSED, Severity.WARNING)
    assert set(one.rounds) == set(range(4, 9))
    for client in CULPRITS:
        told = one.evidence[client]
        assert told["noticed_in_round"] == 4
        assert min(told["gradient_ratio"], told["update_ratio"]) > 5
    assert "first gradient of round 4" in one.why


@pytest.mark.parametrize("kind", ["exploding-lr", "scaled-update", "label-flip"])
def test_what_is_no_matter_of_inputs_is_not_told_as_one(tmp_path: Path, kind: str) -> None:
    """A long step, a long update or a wrong label leaves the first gradient nearly as long as the others'."""
    findings = found(_chart(tmp_path, kind), "FL506")
    assert not [one for one in findings if "first gradient" in one.why]


def test_without_gradients_the_rule_still_looks(tmp_path: Path) -> None:
    """Where none was sampled, nobody is accused by a gradient, and the rule does not break."""
    chart = _chart(tmp_path, "unnormalised-input")
    object.__setattr__(chart, "gradients", None)
    assert not [one for one in found(chart, "FL506") if "first gradient" in one.why]
