"""Batched models against autograd, client by client: any shape, any mask, unequal batches."""

from __future__ import annotations

from collections.abc import Callable

import own_models
import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedvitals.train.batched import Unbatchable, batched_model
from fedvitals.train.batched.chain import Chain
from fedvitals.train.batched.layers import NOTHING, cross_entropy
from fedvitals.train.flat import FlatModel
from fedvitals.train.models import SequenceGRU, TokenGRU

clients, rows, seeds = st.integers(1, 4), st.integers(1, 5), st.integers(0, 10_000)
Maker = Callable[[tuple[int, ...], int], nn.Module]


def _filled(clients: int, rows: int, generator: torch.Generator) -> Tensor:
    """How many rows each client really has, at least one; the first has all."""
    filled = torch.randint(1, rows + 1, (clients,), generator=generator)
    filled[0] = rows
    return filled


def _share(filled: Tensor, rows: int) -> Tensor | float:
    if bool((filled == rows).all()):
        return 1.0 / rows
    return (torch.arange(rows) < filled[:, None]) / filled[:, None].float()


def _alone(flat: FlatModel, weights: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Loss and gradient of one client, by autograd."""
    with torch.no_grad():
        flat.weights.copy_(weights)
        flat.gradient.zero_()
    loss = F.cross_entropy(flat.module(x), y)
    loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return loss.detach(), flat.gradient.clone()


def _agreed(module: nn.Module, x: Tensor, y: Tensor, filled: Tensor, seed: int) -> str:
    """How the batch was computed, once every client's loss and gradient in it are found to be those it has alone."""
    flat = FlatModel(module)
    generator = torch.Generator().manual_seed(seed)
    batched = batched_model(flat, x[0, 0])
    weights = flat.weights + 0.1 * torch.randn(len(x), flat.size, generator=generator)
    gradient = torch.full_like(weights, 9.0)  # whatever was there before must be overwritten
    with torch.no_grad():
        losses = batched.losses_and_gradient(
            weights,
            gradient,
            _rows_apart(batched.prepared(x.flatten(0, 1).clone()), y),
            y,
            _share(filled, y.shape[1]),
        )
    for client, count in enumerate(filled.tolist()):
        loss, expected = _alone(flat, weights[client], x[client, :count], y[client, :count])
        torch.testing.assert_close(losses[client], loss, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(gradient[client], expected, rtol=1e-4, atol=1e-6)
    return batched.how


@st.composite
def chains(draw: st.DrawFn) -> nn.Sequential:
    """Any chain of the layers that are batched by hand, on rows of [2, 3]."""
    layers: list[nn.Module] = [nn.Flatten()]
    width = 6
    for _ in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(["linear", "relu", "tanh"]))
        if kind == "linear":
            size = draw(st.integers(1, 5))
            layers.append(nn.Linear(width, size, bias=draw(st.booleans())))
            width = size
        else:
            layers.append(nn.ReLU() if kind == "relu" else nn.Tanh())
    layers.append(nn.Linear(width, 3, bias=draw(st.booleans())))
    if draw(st.booleans()):
        layers.append(nn.Tanh())
    return nn.Sequential(*layers)


@settings(max_examples=60)
@given(chains(), clients, rows, seeds)
def test_chains_by_hand_are_autograd(module: nn.Sequential, clients: int, rows: int, seed: int) -> None:
    """Dense, ReLU, tanh and flatten, with and without bias, in any order."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(clients, rows, 2, 3, generator=generator)
    y = torch.randint(0, 3, (clients, rows), generator=generator)
    assert _agreed(module, x, y, _filled(clients, rows, generator), seed) == "hand-batched layers"


@st.composite
def picture_chains(draw: st.DrawFn) -> tuple[nn.Sequential, tuple[int, int, int]]:
    """A chain of convolutions and poolings as people write it, with the shape of its rows."""
    inputs, height, width = draw(st.sampled_from([1, 1, 3])), draw(st.integers(4, 9)), draw(st.integers(4, 9))
    layers: list[nn.Module] = []
    before = inputs
    for _ in range(draw(st.integers(1, 2))):
        outputs, kernel = draw(st.integers(1, 3)), draw(st.sampled_from([1, 3]))
        padding = draw(st.integers(0, kernel // 2))
        layers.append(nn.Conv2d(before, outputs, kernel, padding=padding, bias=draw(st.booleans())))
        layers += draw(st.sampled_from([[nn.MaxPool2d(2), nn.ReLU()], [nn.ReLU(), nn.MaxPool2d(2, 1)], [nn.ReLU()]]))
        before = outputs
    shape = (inputs, height, width)
    try:
        features = nn.Sequential(*layers)(torch.zeros(1, *shape)).numel()
    except RuntimeError:
        assume(False)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, 3)), shape


@settings(max_examples=60)
@given(picture_chains(), clients, rows, seeds)
def test_convolutions_by_hand_are_autograd(
    chain: tuple[nn.Sequential, tuple[int, int, int]], clients: int, rows: int, seed: int
) -> None:
    """Of one channel or three, of odd and even sides, pooled or not, padded or not, with and without bias."""
    module, shape = chain
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(clients, rows, *shape, generator=generator)
    y = torch.randint(0, 3, (clients, rows), generator=generator)
    assert _agreed(module, x, y, _filled(clients, rows, generator), seed) == "hand-batched layers"


def test_of_equal_neighbours_the_first_wins_as_in_torch() -> None:
    """Flat pictures and a kernel of ones: all but the rims are ties, and each gradient has its one way to go."""
    first = nn.Conv2d(1, 2, 3, padding=1)
    nn.init.ones_(first.weight)
    second = nn.Conv2d(2, 2, 3, padding=1)
    nn.init.ones_(second.weight)
    module = nn.Sequential(first, nn.MaxPool2d(2), second, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 3))
    x = torch.ones(2, 3, 1, 8, 8) * torch.arange(1.0, 4.0).view(1, 3, 1, 1, 1)
    flat = FlatModel(module)
    batched = batched_model(flat, x[0, 0])
    weights, gradient = flat.weights.repeat(2, 1), torch.empty(2, flat.size)
    y = torch.tensor([[0, 1, 2], [0, 1, 2]])
    with torch.no_grad():
        batched.losses_and_gradient(weights, gradient, _rows_apart(batched.prepared(x.flatten(0, 1)), y), y, 1 / 3)
    _, expected = _alone(flat, weights[0].clone(), x[0], y[0])
    torch.testing.assert_close(gradient[1], expected, rtol=1e-4, atol=1e-5)


@settings(max_examples=20)
@given(clients, rows, st.integers(1, 6), seeds)
def test_grus_by_hand_are_autograd(clients: int, rows: int, length: int, seed: int) -> None:
    """Over tokens and over channels, of any length."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 3, (clients, rows), generator=generator)
    filled = _filled(clients, rows, generator)
    tokens = torch.randint(0, 5, (clients, rows, length), generator=generator)
    assert _agreed(TokenGRU(5, 2, 4, 3), tokens, y, filled, seed) == "hand-batched GRU"
    channels = torch.randn(clients, rows, length, 2, generator=generator)
    assert _agreed(SequenceGRU(2, 4, 3), channels, y, filled, seed) == "hand-batched GRU"


VMAPPED: list[Maker] = [
    own_models.plain,
    own_models.one_layer_twice,
    own_models.tied_bias,
    own_models.own_sequential,
    own_models.hooked,
    own_models.frozen_first,
    own_models.unused,
    own_models.masked,
]


@pytest.mark.parametrize("make", VMAPPED, ids=lambda make: make.__name__)
def test_other_models_by_vmap_are_autograd(make: Maker) -> None:
    """Tied, frozen, unused, hooked and reordered parameters each get the gradient that autograd gives them."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(3, 4, 6, generator=generator)
    y = torch.randint(0, 3, (3, 4), generator=generator)
    assert _agreed(make((6,), 3), x, y, torch.tensor([4, 1, 3]), 5) == "torch.func.vmap"


def test_vmap_leaves_the_module_as_it_was() -> None:
    """A module in two places keeps its own parameters: the executor trains single clients with it too."""
    flat = FlatModel(own_models.one_layer_twice((6,), 3))
    before = [id(parameter) for parameter in flat.module.parameters()]
    batched = batched_model(flat, torch.zeros(6))
    with torch.no_grad():
        weights = flat.weights.expand(2, -1).clone()
        batched.losses_and_gradient(
            weights, torch.zeros_like(weights), torch.ones(2, 1, 6), torch.zeros(2, 1).long(), 1.0
        )
    assert [id(parameter) for parameter in flat.module.parameters()] == before
    assert all(type(parameter) is nn.Parameter for parameter in flat.module.parameters())


def test_one_relu_in_two_places_is_applied_twice() -> None:
    """An object that stands twice in a Sequential is two layers of the chain."""
    generator = torch.Generator().manual_seed(2)
    x, y = torch.randn(2, 3, 6, generator=generator), torch.randint(0, 3, (2, 3), generator=generator)
    assert _agreed(own_models.one_relu_twice((6,), 3), x, y, torch.tensor([3, 3]), 2) == "hand-batched layers"


def test_a_chain_that_cannot_run_goes_by_vmap() -> None:
    """A Linear over the last of several axes is no product of batches, so vmap does it."""
    generator = torch.Generator().manual_seed(2)
    x, y = torch.randn(2, 3, 4, 5, generator=generator), torch.randint(0, 3, (2, 3), generator=generator)
    assert _agreed(own_models.linear_over_time((4, 5), 3), x, y, torch.tensor([3, 2]), 2) == "torch.func.vmap"


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda shape, classes: nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)), "batch normal"),
        (lambda shape, classes: nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.5), nn.Linear(4, 3)), "dropout draws"),
        (own_models.running_written, "writes to the buffer mean"),
        (own_models.running_anew, "writes to the buffer mean"),
        (own_models.noisy, "vmap cannot run it"),
        (own_models.refusing, "vmap cannot run it"),
    ],
)
def test_what_cannot_be_batched_says_why(make: Maker, why: str) -> None:
    """State of its own, random numbers of its own, or a way that depends on the values."""
    flat = FlatModel(make((6,), 3))
    before = flat.sha256()
    with pytest.raises(Unbatchable, match=why):
        batched_model(flat, torch.ones(6))
    assert flat.sha256() == before


def test_dropout_of_nothing_is_no_reason() -> None:
    """A dropout that is switched off draws nothing."""
    flat = FlatModel(nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.0), nn.Linear(4, 3)))
    assert batched_model(flat, torch.ones(6)).how == "torch.func.vmap"


@settings(max_examples=60)
@given(clients, rows, st.integers(2, 6) | st.sampled_from([32, 33, 70]), st.sampled_from([3.0, 300.0]), seeds)
def test_cross_entropy_and_its_gradient(clients: int, rows: int, classes: int, scale: float, seed: int) -> None:
    """As torch has it, over the rows that count, of few classes and of many, small logits and large."""
    generator = torch.Generator().manual_seed(seed)
    logits = (scale * torch.randn(clients, rows, classes, generator=generator)).requires_grad_()
    y = torch.randint(0, classes, (clients, rows), generator=generator)
    filled = _filled(clients, rows, generator)
    each = [F.cross_entropy(logits[i, :n], y[i, :n]) for i, n in enumerate(filled.tolist())]
    torch.stack(each).sum().backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    losses, gradient = cross_entropy(logits.detach(), y, _share(filled, rows))
    torch.testing.assert_close(losses, torch.stack(each).detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradient, logits.grad, rtol=1e-4, atol=1e-6)


def test_a_row_that_only_fills_up_may_hold_anything() -> None:
    """NaN and infinities in rows without a share reach neither loss nor gradient."""
    logits = torch.zeros(2, 3, 4)
    logits[1, 1:] = torch.tensor([float("nan"), float("inf"), 0.0, 0.0])
    share = torch.tensor([[1 / 3, 1 / 3, 1 / 3], [1.0, 0.0, 0.0]])
    losses, gradient = cross_entropy(logits, torch.zeros(2, 3, dtype=torch.int64), share)
    torch.testing.assert_close(losses, torch.full((2,), 4.0).log())
    assert gradient.isfinite().all()
    assert bool((gradient[1, 1:] == 0).all())


def test_one_clients_nan_stays_its_own() -> None:
    """Whatever the way of batching, a client with NaN leaves the others' gradients bit for bit as they were."""
    for module, shape in (
        (nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3)), (6,)),
        (own_models.plain((6,), 3), (6,)),
        (own_models.smooth_pictures((2, 6, 6), 3), (2, 6, 6)),
        (SequenceGRU(3, 4, 3), (5, 3)),
    ):
        flat = FlatModel(module)
        x = torch.randn(3, 4, *shape, generator=torch.Generator().manual_seed(1))
        spoilt = x.clone()
        spoilt[1] = float("nan")
        found = [_gradient(flat, rows) for rows in (x, spoilt)]
        assert torch.equal(found[0][[0, 2]], found[1][[0, 2]])
        assert bool(found[1][1].isnan().any())


def _gradient(flat: FlatModel, x: Tensor) -> Tensor:
    batched = batched_model(flat, torch.zeros_like(x[0, 0]))
    weights = flat.weights.expand(len(x), -1).clone()
    gradient = torch.zeros_like(weights)
    with torch.no_grad():
        batched.losses_and_gradient(weights, gradient, x.clone(), torch.zeros(x.shape[:2]).long(), 1.0 / x.shape[1])
    return gradient


def _rows_apart(rows: Tensor, y: Tensor) -> Tensor:
    """[clients * rows, ...] -> [clients, rows, ...], as the labels are."""
    return rows.reshape(*y.shape, *rows.shape[1:])


@pytest.mark.parametrize("channels", [1, 3])
def test_a_chain_keeps_no_activations_after_its_step(channels: int) -> None:
    """What the forward pass kept is let go layer by layer in the backward pass."""
    module = nn.Sequential(
        *(nn.Conv2d(channels, 2, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(2, 2, 3), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 3)),
    )
    flat = FlatModel(module)
    x = torch.ones(2, 4, channels, 8, 8)
    chain = batched_model(flat, x[0, 0])
    assert isinstance(chain, Chain)
    weights = flat.weights.expand(2, -1).clone()
    prepared = _rows_apart(chain.prepared(x.flatten(0, 1)), torch.zeros(2, 4))
    with torch.no_grad():
        chain.losses_and_gradient(weights, torch.zeros_like(weights), prepared, torch.zeros(2, 4).long(), 0.25)
    kept = ("_x", "_y", "_kernels", "_winners", "_patches", "_four", "_two")
    left = [getattr(layer, name, NOTHING).numel() for layer in chain._layers for name in kept]
    assert sum(left) == 0
