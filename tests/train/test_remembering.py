"""A server that remembers what each client sent last: its steps, its memory's bounds, and whole trainings with it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_jobs import EXECUTORS, Spy, apart, run, small
from torch import Tensor, nn

from fedvitals.codecs import parse
from fedvitals.errors import JobError
from fedvitals.train.aggregate import make
from fedvitals.train.build import build
from fedvitals.train.downlink import Downlink
from fedvitals.train.flat import FlatModel
from fedvitals.train.hooks import Rollback, RoundUpdates
from fedvitals.train.remembering import Remembered, rows_of_all
from fedvitals.train.server import Server
from fedvitals.train.uplink import Uplink

ASYNC: dict[str, Any] = {
    "data.clients": 12,
    "train.rounds": 12,
    "server.mode": "async",
    "server.buffer": 3,
    "server.concurrency": 6,
    "server.remember": True,
    "execute.clock": "virtual",
    "network.profile": "mobile",
}
ROWS = {"a": 1, "b": 2, "c": 5}


def _mean(rows: Tensor, weights: Sequence[float]) -> Tensor:
    shares = torch.tensor(weights) / sum(weights)
    return (shares.unsqueeze(1) * rows).sum(0)


def _server(aggregator: str = "fedavg", remembers: bool = True) -> Server:
    torch.manual_seed(0)
    model = FlatModel(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)))
    plain = parse("identity")
    ways = Uplink(plain, model), Downlink(plain, model)
    return Server(model, make(aggregator, 1.0), *ways, samples=ROWS if remembers else None)


def _updates(server: Server, clients: str, seed: int) -> RoundUpdates:
    values = 0.01 * torch.randn(len(clients), server.model.size, generator=torch.Generator().manual_seed(seed))
    return RoundUpdates(tuple(clients), values, torch.tensor([float(ROWS[client]) for client in clients]))


@settings(max_examples=30)
@given(seed=st.integers(0, 1000), steps=st.integers(1, 5))
def test_with_everybody_in_each_step_it_is_the_average(seed: int, steps: int) -> None:
    """What was remembered cancels out, whatever the clients' rows are."""
    memory = Remembered(ROWS, 7)
    torch.manual_seed(seed)
    for _ in range(steps):
        updates = torch.randn(3, 7)
        step = _mean(memory.corrected(list(ROWS), updates), list(ROWS.values()))
        torch.testing.assert_close(step, _mean(updates, list(ROWS.values())), rtol=1e-4, atol=1e-5)


def test_a_step_is_the_mean_of_all_and_how_those_who_came_differ() -> None:
    """By hand: who comes for the first time counts as it is; who comes again corrects what it said before."""
    memory = Remembered(ROWS, 1)
    assert memory.corrected(["a"], torch.tensor([[8.0]])).tolist() == [[8.0]]
    assert memory.mean.tolist() == [8.0]
    assert memory.corrected(["b"], torch.tensor([[2.0]])).tolist() == [[2.0]]
    assert memory.mean.tolist() == [(8.0 + 2 * 2.0) / 3]
    assert memory.corrected(["a", "c"], torch.tensor([[17.0], [8.0]])).tolist() == [[4.0 + 17.0 - 8.0], [8.0]]
    assert memory.mean.tolist() == [(17.0 + 2 * 2.0 + 5 * 8.0) / 8]
    assert memory.corrected(["b"], torch.tensor([[2.0]])).tolist() == [memory.mean.tolist()]


def test_once_all_were_heard_the_same_again_is_the_whole_mean() -> None:
    """Whoever comes: that is what the memory is for."""
    torch.manual_seed(3)
    memory, sent = Remembered(ROWS, 5), torch.randn(3, 5)
    memory.corrected(list(ROWS), sent)
    for place, client in enumerate(ROWS):
        rows = memory.corrected([client], sent[place : place + 1])
        torch.testing.assert_close(rows[0], _mean(sent, list(ROWS.values())))


def test_what_is_not_finite_is_passed_on_and_not_kept() -> None:
    """Averaging shows it, and no later step has it; nor has any what somebody unknown sent."""
    memory = Remembered(ROWS, 1)
    memory.corrected(["a"], torch.tensor([[8.0]]))
    for spoilt in (math.nan, math.inf):
        assert not math.isfinite(float(memory.corrected(["a"], torch.tensor([[spoilt]]))))
    memory.corrected(["nobody"], torch.tensor([[99.0]]))
    assert memory.mean.tolist() == [8.0]
    assert memory.corrected(["a"], torch.tensor([[8.0]])).tolist() == [[8.0]]


def test_running_statistics_are_averaged_and_counted_as_without() -> None:
    """They are not steps, and are not remembered as such."""
    server, plain = _server(), _server(remembers=False)
    moving = server.model.trainable
    assert moving is not None
    for number, clients in enumerate(("ab", "c", "ab")):
        counts = [{"1.num_batches_tracked": torch.tensor(number)}]
        for one in (server, plain):
            one.aggregate(_updates(one, clients, number), counts)
    assert torch.equal(server.model.weights[~moving], plain.model.weights[~moving])
    assert not torch.allclose(server.model.weights[moving], plain.model.weights[moving])
    assert int(server.model.integers["1.num_batches_tracked"]) == 2


@pytest.mark.parametrize("aggregator", ["fedavg", "fedavgm", "fedadam"])
def test_a_step_that_was_rolled_back_is_forgotten(aggregator: str) -> None:
    """Of known clients and of new ones: what follows is what would have followed."""
    spared, struck = _server(aggregator), _server(aggregator)
    for server in (spared, struck):
        server.aggregate(_updates(server, "ab", 1), [])
    before = {name: tensor.clone() for name, tensor in struck.model.module.state_dict().items()}
    struck.aggregate(_updates(struck, "bc", 2), [])
    struck.roll_back(before)
    for server in (spared, struck):
        server.aggregate(_updates(server, "abc", 3), [])
        server.aggregate(_updates(server, "a", 4), [])
    assert torch.equal(struck.model.weights, spared.model.weights)


def test_too_much_to_remember_is_refused_beforehand() -> None:
    """With what it would take, and what to do; who is excluded takes nothing."""
    job = small({"server.remember": True, "train.exclude": ["2"]})
    federation = build(job)
    rows = rows_of_all(job, federation, 100, most=5 * 400)
    assert rows is not None
    assert sorted(rows) == ["0", "1", "3", "4", "5"]
    with pytest.raises(JobError, match=r"server\.remember = true would keep 100 values for each of 5 clients"):
        rows_of_all(job, federation, 100, most=5 * 400 - 1)
    assert rows_of_all(small(), federation, 10**12) is None


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"server.aggregator": "median"}, r'server\.aggregator = "median" takes none; right is fedavg'),
        ({"server.aggregator": "fedasync", "server.mode": "async"}, r'"fedasync" takes none'),
        ({"server.prune": 0.5, "train.rounds": 12}, r"server\.prune cuts"),
    ],
)
def test_what_cannot_remember_says_so(changes: dict[str, Any], says: str) -> None:
    """A vote would not keep out what was remembered; what is cut stays cut."""
    with pytest.raises(JobError, match=says):
        small({"server.remember": True, **changes})


@pytest.mark.parametrize("executor", EXECUTORS)
def test_without_rounds_a_repeat_is_the_same_to_the_bit(executor: str, tmp_path: Path) -> None:
    """On the virtual clock, watched or not; and it is not what the job is without a memory."""
    job = small(ASYNC, executor=executor)
    first = run(job, tmp_path)
    assert first.weights_sha256 == run(job).weights_sha256
    assert apart(first, run(small(ASYNC))) < 1e-5
    assert apart(first, run(small({**ASYNC, "server.remember": False}))) > 1e-3


def test_a_buffer_of_all_clients_is_fedbuff() -> None:
    """Weights for age included: all 12 are in every step, and none waits for another's turn."""
    job = {**ASYNC, "server.buffer": 12, "server.concurrency": 12, "network.profile": "none", "train.rounds": 5}
    assert apart(run(small(job)), run(small({**job, "server.remember": False}))) < 1e-5


@pytest.mark.parametrize(
    "changes",
    [
        {"codec.up": "feedback(topk:0.1 | quantize:8)", "codec.down": "quantize:8"},
        {"server.deadline_s": 0.05, "server.late": "use"},
        {"model.norm": "batch"},
        {"codec.up": "fp16", "faults": [{"kind": "nan-update", "clients": [2]}]},
        {"server.mode": "sync", "server.buffer": 10},
    ],
    ids=["codecs", "late", "batch norm", "refused updates", "rounds"],
)
def test_it_goes_with_the_rest(changes: dict[str, Any]) -> None:
    """Codecs both ways, late updates, running statistics, updates that are refused, and rounds."""
    result = run(small({**ASYNC, **changes}))
    assert result.loss is not None
    assert math.isfinite(result.loss)
    assert all(bool(tensor.isfinite().all()) for tensor in result.model.state_dict().values())


def test_on_the_real_clock() -> None:
    """In worker processes, each on a model of its own."""
    job = {**ASYNC, "execute.clock": "real", "network.profile": "none", "execute.workers": 3}
    result = run(small(job, executor="processes"))
    assert (result.executor, result.rounds) == ("processes", 12)
    assert math.isfinite(result.loss or math.nan)


def test_a_hook_sees_what_clients_sent_and_may_keep_it_out() -> None:
    """Not the corrected rows; whom it leaves out is not remembered either."""

    class Without(Spy):
        def before_aggregate(self, round: int, updates: RoundUpdates) -> RoundUpdates:
            super().before_aggregate(round, updates)
            return updates.without({"2"}) if len(updates.clients) > 1 else updates

        def after_round(self, round: int, model_state: Any) -> Rollback | None:
            return None

    job = {**ASYNC, "network.profile": "none", "faults": [{"kind": "scaled-update", "clients": [2], "strength": 1e6}]}
    spy = Without()
    result = run(small(job), hook=spy)
    norms = [float(row.norm()) for step in spy.updates for client, row in step.items() if client != "2"]
    huge = [float(row.norm()) for step in spy.updates for client, row in step.items() if client == "2"]
    assert huge
    assert min(huge) > 100 * max(norms)
    assert math.isfinite(result.loss or math.nan)
    assert max(float(tensor.abs().max()) for tensor in result.model.state_dict().values()) < 100
