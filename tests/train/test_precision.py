"""Mixed precision: refused with a measured reason where it does not pay, near float32 where it is used all the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small_jobs import Told, apart, run, small
from torch import nn

from fedvitals.errors import JobError
from fedvitals.train import precision
from fedvitals.train.precision import Steps, measured

BF16: dict[str, Any] = {"train.precision": "bf16"}


def _slow(module: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Steps:
    return Steps(fp32_s=0.001, bf16_s=0.002)


def _fast(module: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Steps:
    return Steps(fp32_s=0.002, bf16_s=0.001)


def test_where_it_does_not_pay_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the key, what was measured, and the two ways out."""
    monkeypatch.setattr(precision, "measured", _slow)
    with pytest.raises(JobError) as caught:
        run(small(BF16))
    message = str(caught.value)
    assert 'train.precision = "bf16" does not pay here: with 8 rows a batch it is 0.50 times as fast' in message
    assert "2.00 ms against 1.00 ms" in message
    assert 'train.precision = "fp32", or execute.measure = false' in message


@pytest.mark.parametrize("executor", ["sequential", "vectorised"])
def test_where_it_pays_clients_train_in_it_one_by_one(executor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights end near those of float32, and not on them."""
    monkeypatch.setattr(precision, "measured", _fast)
    told = Told()
    plain, half = run(small(executor="sequential")), run(small(BF16, executor=executor), progress=told)
    assert 1e-5 < apart(plain, half) < 0.05
    assert told.beginning[1] == ("sequential" if executor == "sequential" else "processes")
    assert all(tensor.dtype == torch.float32 for tensor in half.model.state_dict().values())


def test_it_can_be_had_unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """`execute.measure = false` takes bf16 whatever it costs, with recomputed activations as well."""
    monkeypatch.setattr(precision, "measured", _slow)
    changes = {**BF16, "execute.measure": False, "model.hidden": [8, 8, 8]}
    plain, again = run(small(changes)), run(small({**changes, "train.checkpoint": True}))
    assert plain.weights_sha256 == again.weights_sha256


def test_measuring_leaves_everything_as_it_was() -> None:
    """Neither the model, its statistics and gradients, nor the caller's random numbers change."""
    module = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    state = torch.random.get_rng_state()
    steps = measured(module, torch.randn(4, 6, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 1, 2, 0]))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())
    assert min(steps) > 0.0


def test_a_model_that_cannot_be_cast_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch says is passed on."""

    def fails(module: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Steps:
        raise RuntimeError("mat1 and mat2 must have the same dtype")

    monkeypatch.setattr(precision, "measured", fails)
    with pytest.raises(JobError, match="does not run in bf16: mat1 and mat2 must have the same dtype"):
        run(small(BF16))


def test_fp16_is_refused_with_the_reason() -> None:
    """On a processor it never pays, and it loses gradients."""
    with pytest.raises(JobError, match=r'train.precision = "fp16".* many times slower than fp32'):
        small({"train.precision": "fp16"})
