"""Local SGD on flat weights against torch.optim.SGD with the same settings."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from fedvitals.train.sections import TrainSpec
from fedvitals.train.sgd import LocalSGD

STEPS = 4
specs = st.builds(
    TrainSpec,
    lr=st.sampled_from([0.01, 0.3]),
    momentum=st.sampled_from([0.0, 0.9]),
    weight_decay=st.sampled_from([0.0, 0.05]),
    clip=st.sampled_from([0.0, 0.5, 100.0]),
    proximal=st.sampled_from([0.0, 0.2]),
)


def _gradients(clients: int, size: int, seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(clients, size, generator=generator) for _ in range(STEPS)]


def _by_torch(spec: TrainSpec, start: Tensor, gradients: list[Tensor]) -> Tensor:
    """One client, as a PyTorch loop does it: the proximal term in the loss, clipping before the step."""
    parameter = nn.Parameter(start.clone())
    optimizer = torch.optim.SGD([parameter], spec.lr, momentum=spec.momentum, weight_decay=spec.weight_decay)
    for gradient in gradients:
        optimizer.zero_grad()
        pull = spec.proximal / 2 * (parameter - start).square().sum()
        ((parameter * gradient).sum() + pull).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        if spec.clip:
            torch.nn.utils.clip_grad_norm_([parameter], spec.clip)
        optimizer.step()
    return parameter.detach()


def _by_us(spec: TrainSpec, start: Tensor, gradients: list[Tensor], lr: float | Tensor | None = None) -> Tensor:
    sgd = LocalSGD.of(spec, None)
    weights = start.expand_as(gradients[0]).clone()
    velocity = sgd.velocity(weights)
    for gradient in gradients:
        sgd.step(weights, gradient.clone(), velocity, start, spec.lr if lr is None else lr)
    return weights


@given(specs, st.integers(0, 1000))
def test_it_is_torchs_sgd(spec: TrainSpec, seed: int) -> None:
    """With any mix of momentum, decay, clipping and pull, within the error of float32."""
    start = torch.randn(9, generator=torch.Generator().manual_seed(seed + 1))
    gradients = _gradients(3, 9, seed)
    ours = _by_us(spec, start, gradients)
    for client in range(3):
        theirs = _by_torch(spec, start, [gradient[client] for gradient in gradients])
        torch.testing.assert_close(ours[client], theirs, rtol=1e-5, atol=1e-6)


@given(specs, st.integers(0, 1000))
def test_many_clients_are_one_client_each(spec: TrainSpec, seed: int) -> None:
    """A matrix of clients moves as its rows would, one by one."""
    start = torch.randn(7, generator=torch.Generator().manual_seed(seed))
    gradients = _gradients(4, 7, seed)
    together = _by_us(spec, start, gradients)
    alone = [_by_us(spec, start, [gradient[client] for gradient in gradients]) for client in range(4)]
    torch.testing.assert_close(together, torch.stack(alone), rtol=1e-6, atol=1e-7)


def test_each_client_may_have_its_own_rate() -> None:
    """A column of rates does what each rate does alone."""
    start, gradients = torch.ones(5), _gradients(3, 5, 1)
    rates = torch.tensor([[0.1], [1.0], [0.0]])
    spec = TrainSpec(momentum=0.5)
    together = _by_us(spec, start, gradients, rates)
    for client, rate in enumerate(rates.flatten().tolist()):
        alone = _by_us(spec, start, [gradient[client] for gradient in gradients], rate)
        torch.testing.assert_close(together[client], alone)
    assert torch.equal(together[2], start)


def test_what_is_not_trainable_stays() -> None:
    """Neither weight decay nor the pull moves a value outside of the mask."""
    mask = torch.tensor([True, False, True, False])
    sgd = LocalSGD.of(TrainSpec(weight_decay=0.5, proximal=0.5, momentum=0.9), mask)
    weights, received = torch.full((4,), 3.0), torch.ones(4)
    velocity = sgd.velocity(weights)
    for _ in range(3):
        sgd.step(weights, torch.ones(4) * mask, velocity, received, 0.1)
    assert weights[~mask].tolist() == [3.0, 3.0]
    assert (weights[mask] < 3.0).all()


def test_clipping_leaves_a_nan_visible() -> None:
    """A gradient that is not finite stays so: clipping must not hide it."""
    sgd = LocalSGD.of(TrainSpec(clip=1.0), None)
    weights = torch.zeros(2, 3)
    gradient = torch.tensor([[1.0, float("nan"), 1.0], [1.0, 1.0, 1.0]])
    sgd.step(weights, gradient, None, torch.zeros(3), 1.0)
    assert weights[0].isnan().all()
    assert weights[1].isfinite().all()
