"""Clients that differ: drift, one-sided labels, and whom the global model fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from charted import Clock, found, looped, model, trained

from fedvitals.diagnose.chart import Chart
from fedvitals.run import Run
from fedvitals.train.build import build
from fedvitals.train.job import Job

JOB: dict[str, Any] = {"data.clients": 8, "train.clients_per_round": 8, "train.rounds": 10, "train.epochs": 2}
SHARDS = {**JOB, "data.partition": "shards", "data.shards_per_client": 1}


@pytest.fixture(scope="module")
def sided(tmp_path_factory: pytest.TempPathFactory) -> Chart:
    return trained(tmp_path_factory.mktemp("runs"), SHARDS)


def test_one_sided_labels_show_in_the_updates(sided: Chart) -> None:
    """The units that a client is said to push up are the labels that it holds; it is information."""
    skew = found(sided, "FL502")[0]
    federation = build(Job.from_dict({}).replaced(SHARDS))
    assert skew.severity == "info"
    for name, units in skew.evidence["pushed_units"].items():
        labels = federation.y[federation.train_rows[federation.clients.index(name)]]
        held = torch.bincount(labels, minlength=10)
        assert int(held.argmax()) in units


def test_like_labels_are_not_skewed(tmp_path: Path) -> None:
    """Many rows, dealt at random, are not taken for one-sided."""
    chart = trained(tmp_path, {**JOB, "data.partition": "iid"})
    assert found(chart, "FL502") == ()


def test_clients_that_pull_apart_drift(sided: Chart) -> None:
    """With one label each, an update has little in common with the others'; the cosines are told."""
    drift = found(sided, "FL501")
    assert [one.code for one in drift] == ["FL501"]
    assert drift[0].evidence["cosine_last"] < 0.25
    assert 0 < drift[0].evidence["step_to_update_ratio"] < 1


def _judged(accuracies: dict[str, float], rows: int, rounds: int = 2) -> Any:
    def loop(run: Run, clock: Clock) -> None:
        net = model()
        for number in range(rounds):
            with run.round(number, model=net) as rnd:
                clock.go_on(1)
                for name, accuracy in accuracies.items():
                    rnd.evaluated(client=name, split="holdout", accuracy=accuracy, samples=rows)

    return loop


def test_a_client_that_a_good_model_fails_is_named(tmp_path: Path) -> None:
    """Right on nearly all rows of eleven clients, wrong on most of the twelfth's: a warning, with its accuracy."""
    accuracies = {str(place): 0.97 for place in range(11)} | {"odd": 0.2}
    chart = looped(tmp_path, _judged(accuracies, 50))
    hurt = found(chart, "FL503")[0]
    assert (hurt.clients, hurt.severity) == (("odd",), "warning")
    assert hurt.evidence["accuracies"] == {"odd": 0.2}
    assert found(chart, "FL504")[0].clients == ("odd",)


@pytest.mark.parametrize("seed", range(0, 20, 2))
def test_chance_is_not_unfair(tmp_path: Path, seed: int) -> None:
    """Clients that are all served alike, with twenty rows each, differ by chance alone."""
    rng = np.random.default_rng(seed)
    accuracies = {str(place): rng.binomial(20, 0.85) / 20 for place in range(30)}
    assert found(looped(tmp_path, _judged(accuracies, 20)), "FL503", "FL504") == ()
