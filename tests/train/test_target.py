"""A training that ends once it has got what it was for."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_jobs import recorded, run, small

from fedvitals.errors import JobError
from fedvitals.train.target import Target


def test_three_in_a_row_are_wanted() -> None:
    """One below begins the count anew."""
    target = Target(0.5)
    assert [target.held(one) for one in (0.6, 0.6, 0.4, 0.5, 0.6, 0.7, 0.1)] == [*[False] * 5, True, False]
    assert not any(Target(0.0).held(1.0) for _ in range(5))
    later = Target(0.5, 3)
    assert [later.held(0.6, rounds) for rounds in range(1, 7)] == [*[False] * 4, True, True]


@pytest.mark.parametrize("more", [{}, {"server.mode": "async", "server.buffer": 2, "execute.clock": "virtual"}])
def test_a_training_ends_when_its_target_has_held(more: dict[str, object], tmp_path: Path) -> None:
    """Its rounds are those that were trained, and its model the one that had it."""
    job = {"train.rounds": 60, "train.lr": 0.3, "train.stop_at": 0.5, **more}
    result = run(small(job), tmp_path)
    assert 3 <= result.rounds < 60
    with recorded(tmp_path) as reader:
        seen = [one.accuracy or 0.0 for one in reader.evaluations() if one.client is None]
        assert len(reader.rounds()) == result.rounds
        judged = {one.round for one in reader.evaluations() if one.client is not None}
    assert min(seen[-3:]) >= 0.5
    assert result.accuracy == seen[-1]
    assert result.rounds - 1 in judged  # the clients have the final model to themselves as well
    assert run(small({**job, "train.rounds": result.rounds, "train.stop_at": 0.0})).weights_sha256 == (
        result.weights_sha256
    )


def test_a_model_that_is_to_be_cut_is_cut_before_its_target_counts(tmp_path: Path) -> None:
    """The training goes on until three evaluations of the model with all cut had it."""
    pruned = {"server.prune": 0.5, "server.prune_from": 20, "server.prune_until": 30}
    result = run(small({"train.rounds": 60, "train.lr": 0.3, "train.stop_at": 0.5, **pruned}), tmp_path)
    assert 32 <= result.rounds < 60
    weights = [one for one in result.model.state_dict().values() if one.dim() >= 2]
    assert sum(int((one == 0).sum()) for one in weights) == round(0.5 * sum(one.numel() for one in weights))
    with recorded(tmp_path) as reader:
        seen = [one.accuracy or 0.0 for one in reader.evaluations() if one.client is None]
    assert min(seen[-3:]) >= 0.5
    assert min(seen[10:13]) >= 0.5  # before, it would have been enough


def test_a_target_is_a_share() -> None:
    """The setting is named."""
    with pytest.raises(JobError, match=r"train\.stop_at = 90 is out of range; right is at least 0 and at most 1"):
        small({"train.stop_at": 90})
