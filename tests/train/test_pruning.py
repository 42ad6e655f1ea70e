"""Weights cut by magnitude: how many, which, that they stay cut, and that only the others travel."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_jobs import EXECUTORS, Spy, apart, run, small
from torch import Tensor, nn

from fedvitals.codecs import parse
from fedvitals.errors import CodecError, JobError
from fedvitals.train.engine import Training
from fedvitals.train.flat import FlatModel
from fedvitals.train.hooks import Rollback
from fedvitals.train.job import Job
from fedvitals.train.pruning import LiveValues, Pruning, live_layers, prunable
from fedvitals.train.uplink import Uplink

HALF: dict[str, Any] = {"server.prune": 0.5, "train.rounds": 5, "server.prune_from": 1, "server.prune_until": 3}


def _matrices(state: dict[str, Tensor]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in state.values() if tensor.dim() >= 2])


def _zeros(state: dict[str, Tensor]) -> int:
    return int((_matrices(state) == 0).sum())


@given(st.lists(st.floats(-2, 2, width=32), min_size=1, max_size=40), st.floats(0, 0.99))
def test_as_many_go_as_are_to_and_the_smallest(values: list[float], share: float) -> None:
    """Exactly the share, rounded, and nothing that lives is smaller than what was cut; what cannot be cut lives."""
    weights = torch.tensor([*values, 0.0, 0.0])
    can = torch.tensor([True] * len(values) + [False] * 2)
    live = Pruning(share, 0, 1, can).mask(1, weights)
    cut = weights[can & ~live].abs()
    assert len(cut) == round(share * len(values))
    assert live[~can].all()
    if 0 < len(cut) < len(values):
        assert cut.max() <= weights[can & live].abs().min()


@given(st.integers(0, 1000), st.floats(0.1, 0.9))
def test_what_is_cut_stays_cut(seed: int, share: float) -> None:
    """From round to round the live values only become fewer, wherever the others move."""
    generator = torch.Generator().manual_seed(seed)
    weights, can = torch.randn(50, generator=generator), torch.ones(50, dtype=torch.bool)
    pruning = Pruning(share, 0, 5, can)
    before = can
    for rounds in range(1, 8):
        live = pruning.mask(rounds, weights)
        assert not bool((live & ~before).any())
        weights = torch.where(live, weights + 0.3 * torch.randn(50, generator=generator), 0.0)
        before = live


def test_the_schedule_is_cubic() -> None:
    """Nothing before, fast at first, slow at the end, the whole share after."""
    pruning = Pruning(0.8, 2, 6, torch.ones(1, dtype=torch.bool))
    expected = [0.0, 0.0, 0.0, 0.8 * (1 - 0.75**3), 0.8 * (1 - 0.5**3), 0.8 * (1 - 0.25**3), 0.8, 0.8]
    assert [pruning.cut(rounds) for rounds in range(8)] == pytest.approx(expected)


def test_a_nan_is_not_small() -> None:
    """It must not be cut, or nobody would see it."""
    weights = torch.tensor([float("nan"), 1.0, 0.1, 2.0])
    assert Pruning(0.5, 0, 1, torch.ones(4, dtype=torch.bool)).mask(1, weights).tolist() == [True, False, False, True]


def test_biases_and_norms_stay() -> None:
    """Only matrices and kernels of trainable layers can be cut."""
    model = FlatModel(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3)))
    can = {name: bool(mask.all()) for name, mask in model.named(prunable(model)).items()}
    assert {name for name, all_of_it in can.items() if all_of_it} == {"0.weight", "3.weight"}


@pytest.mark.parametrize("codec", ["identity", "fp16", "quantize:8", "topk:0.5", "topk:0.5 | quantize:8 | entropy"])
@given(seed=st.integers(0, 1000))
def test_live_values_go_through_any_codec(codec: str, seed: int) -> None:
    """What was cut arrives as 0, the rest within the codec's own bound, in fewer bytes."""
    generator = torch.Generator().manual_seed(seed)
    model = FlatModel(nn.Sequential(nn.Linear(20, 8), nn.Linear(8, 3)))
    update = torch.randn(model.size, generator=generator)
    live = Pruning(0.6, 0, 1, prunable(model)).mask(1, update)
    named = model.named(torch.where(live, update, 0.0))
    inner = parse(codec)
    pruned = LiveValues(inner, live_layers(model, live))
    data = pruned.encode(named)
    arrived = pruned.decode(data)
    assert all(not bool(arrived[name][~mask].any()) for name, mask in model.named(live).items())
    bound = pruned.error_bound(named)
    assert all(float((arrived[name] - tensor).abs().max()) <= bound for name, tensor in named.items())
    if codec != "topk:0.5 | quantize:8 | entropy":  # which may find zeros cheap as well
        assert len(data) < len(inner.encode(named))


def test_another_number_of_live_values_is_damage() -> None:
    """A message of a stranger is held against the mask."""
    codec = LiveValues(parse("identity"), {"w": torch.tensor([True, False, True])})
    with pytest.raises(CodecError, match=r"layer 'w' has \(1,\) live values, 2 are known"):
        codec.decode(parse("identity").encode({"w": torch.ones(1)}))


@pytest.mark.parametrize("executor", EXECUTORS)
def test_half_the_weights_are_cut_everywhere_alike(executor: str) -> None:
    """On every executor as many are 0 as were asked for, and what came of the others is the same."""
    plain, pruned = run(small(HALF)), run(small(HALF, executor=executor))
    state = pruned.model.state_dict()
    assert _zeros(state) == round(0.5 * len(_matrices(state)))
    assert apart(plain, pruned) < 1e-5


def test_clients_hold_still_what_was_cut() -> None:
    """Updates are 0 where the model is, from the round on in which it was cut."""
    spy = Spy()
    run(small({**HALF, "train.momentum": 0.9, "train.weight_decay": 0.1}), hook=spy)
    model = FlatModel(nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 4)))
    for state, updates in zip(spy.states[1:], spy.updates[2:], strict=False):
        cut = (model.from_named(state) == 0) & prunable(model)
        assert bool(cut.any())
        assert not any(bool(update[cut].any()) for update in updates.values())


@pytest.mark.parametrize(
    ("up", "down"), [("identity", "identity"), ("feedback(topk:0.2 | quantize:8)", "quantize:8"), ("fp16", "fp16")]
)
def test_fewer_bytes_travel_both_ways(up: str, down: str) -> None:
    """With any codec: about half as many a round once half of the weights are cut."""
    changes = {"codec.up": up, "codec.down": down, "model.hidden": [64], "train.rounds": 12, "server.prune_until": 2}
    whole, pruned = run(small(changes | {"server.prune_until": 0})), run(small({**HALF, **changes}))
    assert pruned.bytes_up < 0.7 * whole.bytes_up
    assert pruned.bytes_down < 0.8 * whole.bytes_down
    state = pruned.model.state_dict()
    assert _zeros(state) == round(0.5 * len(_matrices(state)))


@pytest.mark.parametrize("still", [True, False])
def test_what_was_cut_is_not_owed(still: bool) -> None:
    """Of values that never travel again nothing is kept, whether or not the client holds them still; all else is."""
    torch.manual_seed(0)
    model = FlatModel(nn.Sequential(nn.Linear(30, 20), nn.Linear(20, 5)))
    way, updates = Uplink(parse("feedback(topk:0.1)"), model), torch.randn(6, 1, model.size)
    live = torch.rand(model.size) < 0.2
    owed = updates[0, 0] - way.received(["a"], updates[0]).updates[0]
    way.prune(live)
    for update in updates[1:]:
        arrived = way.received(["a"], torch.where(live, update, 0.0) if still else update).updates[0]
        owed = torch.where(live, owed + update[0] - arrived, 0.0)
        assert way.told("a")["residual_norm"] == pytest.approx(float(owed.norm()), rel=1e-4)


class _Back(Spy):
    """Takes back the second round."""

    def after_round(self, round: int, model_state: Any) -> Rollback | None:
        super().after_round(round, model_state)
        return Rollback(self.states[0], "a test") if round == 1 else None


def test_a_round_that_is_taken_back_cuts_nothing() -> None:
    """The model of before comes back with its own weights, and goes on from there."""
    back, spy = _Back(), Spy()
    run(small({**HALF, "train.rounds": 3, "server.prune_until": 3}), hook=back)
    run(small({**HALF, "train.rounds": 3, "server.prune_until": 3}), hook=spy)
    assert _zeros(back.states[0]) < _zeros(back.states[1]) < _zeros(back.states[2])
    assert [_zeros(state) for state in back.states] == [_zeros(state) for state in spy.states]


def test_half_of_a_digits_model_costs_half_a_point_at_most() -> None:
    """Real scans, thirty rounds, the mean of four seeds; in three quarters of the bytes."""
    lost = []
    for seed in range(4):
        job = Job().replaced({"execute.workers": 1, "train.evaluate_every": 30, "seed": seed})
        whole, pruned = run(job), run(job.replaced({"server.prune": 0.5}))
        assert whole.accuracy is not None
        assert pruned.accuracy is not None
        assert whole.accuracy > 0.75
        lost.append(whole.accuracy - pruned.accuracy)
        assert pruned.bytes_up + pruned.bytes_down < 0.8 * (whole.bytes_up + whole.bytes_down)
    assert sum(lost) / len(lost) <= 0.005


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"server.prune_from": 3, "server.prune_until": 2}, "begin after 3 rounds .* right is in this order, within"),
        ({"server.prune_until": 6}, "end after 6 .* within train.rounds = 5"),
        ({"server.mode": "async", "server.buffer": 2, "execute.clock": "virtual"}, "server.prune is for rounds"),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, Any], words: str) -> None:
    """With the keys and what would be right."""
    with pytest.raises(JobError, match=words):
        small({**HALF, **changes})


def test_without_it_nothing_is_cut() -> None:
    """The server has no mask to keep, and clients none to hold to."""
    training = Training.prepare(small())
    assert not training.server.pruned
