"""The server's half of a round: the step of the global model, its buffers, and the bytes on the wire."""

from __future__ import annotations

import pytest
import torch
from small_jobs import Spy, run, small
from torch import Tensor, nn

from fedvitals.codecs import parse
from fedvitals.errors import JobError
from fedvitals.train.aggregate import AGGREGATORS, make
from fedvitals.train.build import build
from fedvitals.train.downlink import Downlink
from fedvitals.train.flat import FlatModel
from fedvitals.train.hooks import RoundUpdates
from fedvitals.train.server import Server
from fedvitals.train.uplink import Uplink

ROBUST = ["median", "trimmed-mean", "krum", "multi-krum", "geometric-median"]


def _flat() -> FlatModel:
    torch.manual_seed(0)
    return FlatModel(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)))


def _server(aggregator: str = "fedavg", lr: float = 1.0) -> Server:
    model = _flat()
    plain = parse("identity")
    return Server(model, make(aggregator, lr), Uplink(plain, model), Downlink(plain, model))


def _updates(server: Server, rows: int = 5, size: float = 0.01) -> RoundUpdates:
    generator = torch.Generator().manual_seed(1)
    values = size * torch.randn(rows, server.model.size, generator=generator)
    return RoundUpdates(tuple(map(str, range(rows))), values, torch.arange(1.0, rows + 1))


def _weighted(updates: RoundUpdates) -> Tensor:
    share = (updates.weights / updates.weights.sum()).unsqueeze(1)
    return (share * updates.updates).sum(0)


def test_a_round_moves_the_model_by_the_weighted_mean() -> None:
    """In a whole training: by each client's number of rows."""
    spy = Spy()
    job = small({"train.clients_per_round": 6, "data.partition": "quantity", "train.rounds": 2})
    run(job, hook=spy)
    federation = build(job)
    held = zip(federation.clients, federation.train_rows, strict=True)
    sizes = {name: float(len(rows)) for name, rows in held}
    before, after = (torch.cat([value.flatten() for value in state.values()]) for state in spy.states)
    mean = sum(sizes[name] * update for name, update in spy.updates[1].items()) / sum(sizes.values())
    assert len(set(sizes.values())) > 1
    torch.testing.assert_close(after - before, torch.as_tensor(mean), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("aggregator", ["fedavg", "fedavgm", "fedadam"])
def test_running_statistics_are_averaged_whatever_the_servers_optimizer(aggregator: str) -> None:
    """Neither its rate nor its momentum touches them: a variance stays above zero, round after round."""
    server = _server(aggregator, lr=0.5)
    model, updates = server.model, _updates(server)
    assert model.trainable is not None
    start = model.weights.clone()
    for number in (1, 2, 3):
        server.aggregate(updates, [])
        moved = model.weights - start
        torch.testing.assert_close(moved[~model.trainable], number * _weighted(updates)[~model.trainable])
    assert not torch.allclose(moved[model.trainable], 3 * _weighted(updates)[model.trainable])


@pytest.mark.parametrize("aggregator", ROBUST)
def test_who_votes_votes_on_running_statistics_too(aggregator: str) -> None:
    """One client's NaN, or its huge numbers, reach neither the weights nor the buffers."""
    for spoilt in (float("nan"), 1e6):
        server = _server(aggregator)
        updates = _updates(server, rows=7)
        updates.updates[2] = spoilt
        start = server.model.weights.clone()
        server.aggregate(updates, [])
        assert bool(((server.model.weights - start).abs() < 0.1).all())


def test_every_aggregator_is_known_to_vote_or_to_average() -> None:
    """A new one has to be put on one side."""
    assert set(AGGREGATORS) == {*ROBUST, "fedavg", "fedavgm", "fedadam", "fedasync"}


def test_counts_take_the_largest() -> None:
    """A mean of counts counts nothing; without any clients' counts they stay."""
    server = _server()
    counts = [{"1.num_batches_tracked": torch.tensor(number)} for number in (4, 9, 2)]
    server.aggregate(_updates(server), counts)
    assert int(server.model.integers["1.num_batches_tracked"]) == 9
    server.aggregate(_updates(server), [])
    assert int(server.model.integers["1.num_batches_tracked"]) == 9


def test_rolling_back_is_whole() -> None:
    """Weights, running statistics and counts; a state that does not fit says where."""
    server = _server()
    before = {name: tensor.clone() for name, tensor in server.model.module.state_dict().items()}
    server.aggregate(_updates(server), [{"1.num_batches_tracked": torch.tensor(5)}])
    server.roll_back(before)
    after = server.model.module.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    with pytest.raises(ValueError, match=r"0\.weight"):
        server.roll_back({**before, "0.weight": torch.zeros(9, 9)})


@pytest.mark.parametrize("aggregator", ["fedavgm", "fedadam"])
def test_a_round_that_was_rolled_back_leaves_no_momentum(aggregator: str) -> None:
    """The next step is the one that would have been without it; a refused roll back changes nothing."""
    spared, struck = _server(aggregator), _server(aggregator)
    for server in (spared, struck):
        server.aggregate(_updates(server), [])
    before = {name: tensor.clone() for name, tensor in struck.model.module.state_dict().items()}
    struck.aggregate(_updates(struck, size=1e3), [])
    struck.roll_back(before)
    for server in (spared, struck):
        server.aggregate(_updates(server), [])
    assert torch.equal(struck.model.weights, spared.model.weights)
    assert not torch.equal(struck.model.weights, struck.model.from_named(before))


def test_bytes_are_counted_as_they_go() -> None:
    """Of each model out and each update in: what the codec really writes."""
    server = _server()
    updates = _updates(server, rows=3)
    received = server.uplink.received(updates.clients, updates.updates)
    size = 3 + 4 * server.model.size + 8  # what says which model, its values, and a count
    assert torch.equal(received.updates, updates.updates)
    assert received.sizes == [size] * 3
    assert server.uplink.bytes == 0  # they may yet break off
    server.uplink.came(received.sizes)
    assert server.downlink.sent("0") == size
    assert (server.uplink.bytes, server.downlink.bytes) == (3 * size, size)
    assert torch.equal(server.outgoing(), server.model.weights)
    assert server.outgoing().data_ptr() != server.model.weights.data_ptr()


@pytest.mark.parametrize("way", ["feedback(grid:0.3 | entropy, momentum=0.9)", "quantize:1", "feedback(topk:0.1)"])
def test_running_statistics_arrive_as_they_are(way: str) -> None:
    """Up and down, whatever a codec does to weights: rounded, a variance could come to lie below zero."""
    model = _flat()
    up, down = Uplink(parse(way), model), Downlink(parse(way), model)
    still = model.trainable
    assert still is not None
    step = torch.where(still, 0.05, -0.099) * torch.linspace(0.5, 1.0, model.size)
    variance = torch.ones(model.size)
    for _ in range(8):
        for arrived in (up.received(["a"], step.unsqueeze(0)).updates[0], down.step(step)):
            assert torch.equal(arrived[~still], step[~still])
            assert not torch.equal(arrived[still], step[still])
        variance += step
    assert bool((variance[~still] > 0).all())


def test_statistics_are_the_float_buffers() -> None:
    """Not weights, and not what counts batches."""
    assert _flat().statistics == {"1.running_mean", "1.running_var"}


def test_a_mean_of_models_is_judged_and_clients_go_on_from_the_last() -> None:
    """The plain mean of the first ones, later a share of it; outside, the weights are those of the last step."""
    model, plain = _flat(), parse("identity")
    server = Server(model, make("fedavg", 1.0), Uplink(plain, model), Downlink(plain, model), average=0.5)
    with server.judged():
        first = model.weights.clone()
    steps = []
    for _ in range(3):
        server.aggregate(_updates(server), [])
        steps.append(model.weights.clone())
    assert torch.equal(first, _flat().weights)
    with server.judged():
        torch.testing.assert_close(model.weights, 0.25 * steps[0] + 0.25 * steps[1] + 0.5 * steps[2])
    assert torch.equal(model.weights, steps[2])

    server.roll_back(model.named(steps[1]))
    with server.judged():
        torch.testing.assert_close(model.weights, 0.5 * steps[0] + 0.5 * steps[1])
    server.finish()
    torch.testing.assert_close(model.weights, 0.5 * steps[0] + 0.5 * steps[1])


def test_averaging_changes_what_is_judged_and_nothing_that_clients_do() -> None:
    """The same updates in every round; the result is the mean, with its own accuracy."""
    spies = Spy(), Spy()
    plain, averaged = (
        run(small({"train.rounds": 4, "server.average": share}), hook=spy)
        for share, spy in zip((0.0, 0.8), spies, strict=True)
    )
    for one, other in zip(spies[0].updates, spies[1].updates, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one)
    assert plain.weights_sha256 != averaged.weights_sha256
    assert plain.loss != averaged.loss
    with pytest.raises(JobError, match="would bring back weights"):
        small({"server.average": 0.5, "server.prune": 0.5})
