"""A run that begins with a trained model has learnt before: its clients are judged as in the middle of another run."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from charted import trained
from digit_loops import digit_loop, network
from torch import Tensor, nn

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.evidence.course import course
from fedvitals.diagnose.evidence.suspicion import suspicions
from fedvitals.diagnose.guessing import goes_on
from fedvitals.vocabulary import Evaluation

SEEDS = (2, 6)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[int, tuple[Chart, nn.Module]]:
    """The run that trained each, and the model."""
    found = {}
    for seed in SEEDS:
        net = network(seed)
        found[seed] = digit_loop(tmp_path_factory.mktemp("cold"), net, seed=seed, clients=8), net
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_nobody_is_suspected_in_a_run_that_goes_on(
    tmp_path: Path, seed: int, models: dict[int, tuple[Chart, nn.Module]]
) -> None:
    """With other rows than those that the model was trained on; what was learnt is told from the loss of guessing."""
    cold, net = models[seed]
    assert math.isnan(goes_on(cold))
    warm = digit_loop(tmp_path, copy.deepcopy(net), seed=seed + 100, clients=8)
    assert goes_on(warm) == pytest.approx(math.log(10))
    learnt = warm.shared(course).column("context.learnt")
    assert np.nanmin(learnt) > 1.0
    assert suspicions(warm) == ()


def test_a_fault_is_found_there_all_the_same(tmp_path: Path, models: dict[int, tuple[Chart, nn.Module]]) -> None:
    """Labels that are wrong from a round on."""

    def seen(number: int, client: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return (x, 9 - y) if client == 5 and number >= 6 else (x, y)

    torch.manual_seed(0)
    chart = digit_loop(tmp_path, copy.deepcopy(models[2][1]), seed=302, clients=8, seen=seen)
    assert {chart.clients[one.client] for one in suspicions(chart)} == {"5"}


def test_only_evaluations_tell_what_guessing_costs(tmp_path: Path) -> None:
    """Not one that takes more rows for others than a cross-entropy could pay for, and not where nothing tells both a
    loss and an accuracy: a regression's losses may all be far below the logarithm of a number of classes."""
    chart = trained(tmp_path, {"train.rounds": 3, "train.evaluate_every": 3})
    table = replace(chart.participations, first_loss=0.1 * chart.participations.first_loss)
    told = Evaluation(round=2, at_ns=0, loss=0.3, accuracy=0.9)
    small = replace(chart, participations=table, evaluations=(told,), _shared={})
    assert goes_on(small) == pytest.approx(math.log(10))
    for others in ((), (told._replace(accuracy=None),), (told._replace(loss=0.05, accuracy=0.4),)):
        assert math.isnan(goes_on(replace(small, evaluations=others, _shared={})))
    assert math.isnan(goes_on(replace(small, participations=type(table).empty(), _shared={})))
