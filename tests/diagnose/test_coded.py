"""What a codec did to updates on their way is nobody's fault, and hides nobody's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from charted import alarms, diagnosed, found, trained

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.coded import lossy_codec, thinned

BASE: dict[str, Any] = {"train.rounds": 25}
SPARSE = "feedback(topk:0.05 | quantize:8 | entropy)"
CODECS = ("topk:0.01", SPARSE, "feedback(ternary:0.02 | entropy)", "threshold:0.01", "quantize:1", "qsgd:2 | entropy")


def _coded(folder: Path, codec: str, *faults: dict[str, Any], **changes: Any) -> Chart:
    return trained(folder, {**BASE, "codec.up": codec, **changes}, faults)


@pytest.mark.parametrize("codec", [*CODECS, "feedback(grid:0.01 | entropy)", "feedback(topk:0.05, momentum=0.9)"])
def test_a_codec_freezes_no_layer_and_forgets_no_zero_grad(tmp_path: Path, codec: str) -> None:
    """Values that did not arrive, sizes that follow from how many did, lengths that rounding makes: nobody's."""
    assert alarms(_coded(tmp_path, codec), "FL303", "FL409", "FL414") == []


@pytest.mark.parametrize("codec", ["topk:0.05", "grid:0.01"])
def test_a_bias_that_never_arrives_is_not_dead(tmp_path: Path, codec: str) -> None:
    """Before a normalisation it has next to no gradient, and a codec leaves it out each time."""
    chart = _coded(tmp_path, codec, **{"model.norm": "batch", "train.batch_size": 16})
    assert found(chart, "FL409") == ()


@pytest.mark.parametrize("codec", ["topk:0.01", SPARSE])
def test_a_frozen_layer_shows_through_a_codec(tmp_path: Path, codec: str) -> None:
    """Its sampled gradients are zero as well. Nobody else is named."""
    chart = _coded(tmp_path, codec, {"kind": "frozen-layer", "clients": ["4"], "strength": 2})
    (one,) = found(chart, "FL409")
    assert (one.clients, one.layers) == (("4",), ("3.weight",))


def test_zeros_alone_do_not_tell(tmp_path: Path) -> None:
    """Without gradients nobody can say whether a layer stood still or was left out."""
    chart = _coded(tmp_path, "topk:0.01")
    assert thinned(chart)
    assert "gradients" in diagnosed(replace(chart, gradients=None, _shared={}), "FL409").not_observable["FL409"]


def test_a_size_that_its_values_do_not_explain(tmp_path: Path) -> None:
    """A message of a grid that is ten times as long for as many values is told; so is one of everybody's."""
    chart = _coded(tmp_path, "feedback(grid:0.01 | entropy)")
    table = chart.participations
    row = int(np.flatnonzero(table.round == 20)[0])
    table.wire_bytes_up[row] *= 10
    (one,) = found(replace(chart, _shared={}), "FL303")
    assert (one.clients, one.rounds) == ((chart.clients[table.client[row]],), (20,))
    table.wire_bytes_up[row] /= 10
    table.wire_bytes_up[table.round >= 15] *= 10
    assert [one.evidence["from_round"] for one in found(replace(chart, _shared={}), "FL303")] == [15]


def test_a_codec_that_loses_most_of_updates_is_in_the_advice(tmp_path: Path) -> None:
    """Where the loss hardly falls, what is left out for good is the first thing to change; feedback keeps it."""
    for codec, advised in (("topk:0.001", True), ("feedback(topk:0.001)", False)):
        (one,) = found(_coded(tmp_path / str(advised), codec), "FL404", "FL406")
        assert any("feedback(topk:0.001)" in action.text for action in one.next) is advised


def test_which_codecs_change_values() -> None:
    """Packed bytes and squeezed ones do not; a config that is no job's says nothing."""
    specs = ("identity", "entropy | zstd:3", "quantize:8 | entropy", "feedback(topk:0.1)")
    assert [lossy_codec({"codec": {"up": spec}}) for spec in specs] == [None, None, *specs[2:]]
    assert [lossy_codec(config) for config in ({}, {"codec": "gzip"}, {"codec": {"up": 3}})] == [None, None, None]
