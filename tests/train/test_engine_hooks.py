"""Hooks at work in a training: dropping, replacing, rolling back, and what the records say of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from small_jobs import EXECUTORS, Spy, recorded, run, small, weights
from torch import Tensor

from fedvitals.errors import TrainingError
from fedvitals.train.build import build
from fedvitals.train.hooks import NoHook, Rollback, RoundUpdates
from fedvitals.vocabulary import Outcome

ALL = {"train.clients_per_round": 6}


class Before(NoHook):
    """Puts something else in the place of the updates."""

    def __init__(self, change: Callable[[RoundUpdates], RoundUpdates]) -> None:
        self._change = change

    def before_aggregate(self, round: int, updates: RoundUpdates) -> RoundUpdates:
        return self._change(updates)


class Back(Spy):
    """Goes back to the model before, in one round."""

    def __init__(self, to: Mapping[str, Tensor], round: int = 1) -> None:
        super().__init__()
        self._to, self._round = to, round

    def after_round(self, round: int, model_state: Mapping[str, Tensor]) -> Rollback | None:
        super().after_round(round, model_state)
        return Rollback(self._to, "it had gone wrong") if round == self._round else None


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_dropped_client_is_rejected(executor: str, tmp_path: Path) -> None:
    """Left out of the model as if it had never been, and recorded as rejected, statistics and all."""
    result = run(small(ALL, executor=executor), tmp_path, hook=Before(lambda updates: updates.without(["1", "4"])))
    with recorded(tmp_path) as reader:
        some, rounds = reader.participations(), reader.rounds()
        norms = [one.update_norm for one in some]
        assert all(len(reader.update_stats(one)) == 4 for one in some)
    assert {one.client for one in some if one.outcome == Outcome.REJECTED} == {"1", "4"}
    assert {one.client for one in some if one.outcome == Outcome.USED} == {"0", "2", "3", "5"}
    assert all((one.applied_version is None) == (one.outcome == Outcome.REJECTED) for one in some)
    assert None not in norms
    assert [(one.selected, one.used, one.failed) for one in rounds] == [(6, 4, 0)] * 2
    never = run(small({**ALL, "faults": [{"kind": "crash", "clients": [1, 4]}]}, executor=executor))
    torch.testing.assert_close(weights(never), weights(result), rtol=0, atol=1e-6)


def test_a_rejected_client_is_no_failure(tmp_path: Path) -> None:
    """One that crashed as well counts apart, also where nothing may be seen of updates."""
    faults = [{"kind": "crash", "clients": [2]}]
    job = small({**ALL, "observe.level": "sealed", "faults": faults})
    result = run(job, tmp_path, hook=Before(lambda updates: updates.without(["1"])))
    assert result.failed == 2
    with recorded(tmp_path) as reader:
        outcomes = {one.client: one.outcome for one in reader.participations(round=1)}
        counts = [(one.selected, one.used, one.failed) for one in reader.rounds()]
    assert outcomes == {**dict.fromkeys("0345", "used"), "1": "rejected", "2": "failed"}
    assert counts == [(6, 4, 1)] * 2


def test_updates_may_be_replaced() -> None:
    """By zeros: then the model stays where it was, and nobody is rejected."""
    hook = Before(lambda some: RoundUpdates(some.clients, torch.zeros_like(some.updates), some.weights))
    first = run(small({**ALL, "train.rounds": 1}), hook=hook)
    third = run(small({**ALL, "train.rounds": 3}), hook=hook)
    assert first.weights_sha256 == third.weights_sha256


def test_a_hook_may_write_to_what_it_is_given(tmp_path: Path) -> None:
    """The records are of what was sent, not of what the hook made of it."""

    def blank(updates: RoundUpdates) -> RoundUpdates:
        updates.updates.zero_()
        return updates

    run(small({**ALL, "train.rounds": 1}), tmp_path, hook=Before(blank))
    with recorded(tmp_path) as reader:
        assert all((one.update_norm or 0) > 0 for one in reader.participations())


class Only(NoHook):
    """Keeps one client."""

    def __init__(self, client: str) -> None:
        self._client = client

    def before_aggregate(self, round: int, updates: RoundUpdates) -> RoundUpdates:
        return updates.without(set(updates.clients) - {self._client})


def test_dropped_clients_do_not_count_batches() -> None:
    """Integer buffers are those of the clients that stayed."""
    changes = {**ALL, "model.kind": "own_models:running_written", "data.partition": "quantity", "train.rounds": 1}
    job = small(changes)
    counted = [int(run(job, hook=Only(client)).model.state_dict()["calls"]) for client in "012"]
    rows = [len(mine) for mine in build(job).train_rows[:3]]
    assert counted == [math.ceil(count / job.train.batch_size) * job.train.epochs for count in rows]
    assert len(set(counted)) > 1


def test_a_round_may_be_rolled_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The next round starts from the model that the hook gave; the log, and so the run, says why."""
    plain = Spy()
    run(small({**ALL, "train.rounds": 3}), hook=plain)
    back = Back(plain.states[0])
    run(small({**ALL, "train.rounds": 3}), tmp_path, hook=back)
    with recorded(tmp_path) as reader:
        prints = [one.fingerprint for one in reader.rounds()]
        said = [one.message for one in reader.logs(level="WARNING")]
    assert prints[2] == prints[1]
    assert said == ["round 1 was rolled back: it had gone wrong"]
    # The third round of the plain training has another base, this one the base of the second, with later batches.
    assert not torch.equal(back.states[2]["1.weight"], plain.states[2]["1.weight"])
    assert torch.equal(back.states[1]["1.weight"], plain.states[1]["1.weight"])


def test_a_roll_back_in_the_last_round_is_the_result() -> None:
    """What is evaluated and given back is the model gone back to."""
    plain = Spy()
    once = run(small({**ALL, "train.rounds": 1}), hook=plain)
    back = run(small({**ALL, "train.rounds": 2}), hook=Back(plain.states[0]))
    assert (back.weights_sha256, back.loss) == (once.weights_sha256, once.loss)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda some: some.without(some.clients), "round 0: the hook left none of 6 updates"),
        (lambda some: None, "round 0: the hook gave back NoneType; right is a RoundUpdates"),
        (
            lambda some: RoundUpdates(some.clients, some.updates[:, :1], some.weights),
            "round 0: the hook gave back updates of 1 values; the model has 140",
        ),
    ],
)
def test_what_cannot_be_aggregated_is_refused(change: Callable[[RoundUpdates], RoundUpdates], said: str) -> None:
    """In words that name the round and the hook."""
    with pytest.raises(TrainingError, match=said):
        run(small(ALL), hook=Before(change))


def test_a_hooks_own_error_comes_through() -> None:
    """It is its author's to see."""

    def stumble(updates: RoundUpdates) -> RoundUpdates:
        raise LookupError("a hook's own")

    with pytest.raises(LookupError, match="a hook's own"):
        run(small(ALL, executor="processes"), hook=Before(stumble))
