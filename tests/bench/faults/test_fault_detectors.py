"""Other people's detectors, as published: each finds what its paper says it finds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from fedvitals.bench.faults.cells import Cell, played
from fedvitals.bench.faults.detectors import tutorials
from fedvitals.bench.faults.detectors.feddebug import lone_dissenters
from fedvitals.bench.faults.detectors.fldetector import LBFGS, FLDetector
from fedvitals.bench.faults.detectors.multi_krum import krum_scores
from fedvitals.bench.faults.detectors.protocol import Sent, Votes
from fedvitals.bench.faults.detectors.watching import Watching
from fedvitals.train.engine import Training


def _watched(cell: Cell) -> tuple[dict[str, frozenset[str]], frozenset[str]]:
    """Whom each detector names at the end, and who is bad."""
    watching: list[Watching] = []

    def watch(training: Training) -> Watching:
        watching.append(Watching(training))
        return watching[0]

    run = played(cell, watch)
    said = {**watching[0].verdicts(), tutorials.NAME: tutorials.named_by_round(run.chart)}
    return {name: verdicts[max(verdicts)] for name, verdicts in said.items()}, run.bad


def test_all_but_thresholds_find_flipped_labels_where_data_is_alike() -> None:
    """The case they were made for: one client's labels are wrong, the others' data is alike, and the count is given."""
    said, bad = _watched(Cell("digits", "iid", 10, 1.0, "label-flip", bad="1"))
    assert len(bad) == 1
    assert said["FedDebug"] == said["FLDetector"] == said["multi-krum"] == bad
    assert said["tutorials"] != bad


def test_given_no_bad_client_those_who_are_told_so_name_nobody() -> None:
    """FedDebug, which has no word for healthy, names one."""
    said, _ = _watched(Cell("digits", "iid", 10))
    assert said["FLDetector"] == said["multi-krum"] == frozenset()
    assert len(said["FedDebug"]) == 1


def test_thresholds_see_what_is_not_finite() -> None:
    """Of everyone who trains on a model that is lost, too."""
    said, bad = _watched(Cell("digits", "iid", 10, 1.0, "nan-update", bad="1", from_round=5))
    assert bad < said["tutorials"]


def test_a_vote_is_that_of_leaving_each_one_out() -> None:
    """Counting lone dark neurons names whom the largest common set leaves out, as the paper computes it."""
    active = torch.from_numpy(np.random.default_rng(3).random((6, 1, 400)) < 0.9)
    on = active[:, 0]
    common = [on[[row for row in range(6) if row != out]].all(dim=0).sum().item() for out in range(6)]
    assert lone_dissenters(active, 1) == [int(np.argmax(common))]


def test_inputs_that_tell_nothing_name_nobody() -> None:
    """When every model lights the same neurons there is no dissenter."""
    assert lone_dissenters(torch.ones(4, 5, 10, dtype=torch.bool), 2) == []


@pytest.mark.parametrize("bad", [1, 2])
def test_krum_scores_are_sums_over_the_nearest(bad: int) -> None:
    """As the definition says, and what is not finite is infinitely far."""
    rows = torch.from_numpy(np.random.default_rng(0).standard_normal((7, 5)))
    rows[3] = torch.nan
    finite = [row for row in range(7) if row != 3]
    scores = krum_scores(rows, bad)
    for row in finite:
        distances = sorted(float(((rows[row] - rows[other]) ** 2).sum()) for other in finite if other != row)
        assert float(scores[row]) == pytest.approx(sum(distances[: 6 - bad - 2]))
    assert scores[3] == torch.inf


def test_lbfgs_knows_a_quadratic_along_its_steps() -> None:
    """What the Hessian does to a step that it was told of, it does."""
    random = np.random.default_rng(1)
    root = random.standard_normal((8, 8))
    hessian = torch.from_numpy(root @ root.T + np.eye(8)).float()
    steps = torch.from_numpy(random.standard_normal((4, 8))).float()
    bend = LBFGS(steps, steps @ hessian)
    torch.testing.assert_close(bend.times(steps[-1:]), steps[-1:] @ hessian, rtol=1e-3, atol=1e-3)


def test_inconsistent_clients_score_highest() -> None:
    """Clients that follow a quadratic's gradient are predicted; one that sends noise of the same size is not."""
    random = np.random.default_rng(2)
    centres = torch.from_numpy(random.standard_normal((6, 12))).float()
    weights, detector, named = torch.zeros(12), FLDetector(), frozenset[str]()
    for number in range(12):
        updates = 0.1 * (centres - weights)
        updates[4] = torch.from_numpy(random.standard_normal(12)).float() * 0.1
        named = detector.named(Sent(number, tuple("abcdef"), updates, weights, 1, 1))
        weights = weights + updates.mean(dim=0)
    assert named == {"e"}


def test_votes_are_shares_of_the_last_participations() -> None:
    """Who was always named outvotes who was named by chance, and nobody is named who never was."""
    votes = Votes()
    for number in range(6):
        votes.count("abc", ["a", "b"] if number == 0 else ["a"])
    assert votes.verdict(1) == {"a"}
    assert votes.verdict(3) == {"a", "b"}
    for _ in itertools.repeat(None, 10):
        votes.count("abc", ["c"])
    assert votes.verdict(3) == {"c"}
