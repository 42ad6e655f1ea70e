"""A module taken over: its tensors are views of one vector, its values stay the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import own_models
import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedvitals.errors import TrainingError
from fedvitals.train.flat import FlatModel

SHAPE, CLASSES = (6,), 3
Maker = Callable[[tuple[int, ...], int], nn.Module]


def _batch_norm(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(shape[0], 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, classes))


MAKERS: list[Maker] = [
    own_models.plain,
    own_models.one_layer_twice,
    own_models.tied_bias,
    own_models.frozen_first,
    own_models.unused,
    own_models.masked,
    own_models.running_written,
    _batch_norm,
]


def _loss(module: nn.Module, rows: int = 5) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(rows, *SHAPE, generator=generator)
    return F.cross_entropy(module(x), torch.arange(rows) % CLASSES)


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_taking_over_changes_nothing(make: Maker) -> None:
    """The same state, the same gradients, once each, at their places."""
    torch.manual_seed(0)
    plain = make(SHAPE, CLASSES)
    flat = FlatModel(_copy(make, plain))
    for name, tensor in plain.state_dict().items():
        assert torch.equal(flat.module.state_dict()[name], tensor), name
    _loss(plain).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    _loss(flat.module).backward()  # type: ignore[no-untyped-call]
    named = flat.named(flat.gradient)
    for name, parameter in plain.named_parameters():
        expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        torch.testing.assert_close(named[name], expected)
    assert flat.size == sum(p.numel() for p in plain.parameters()) + sum(
        b.numel() for b in plain.buffers() if b.is_floating_point()
    )


def _copy(make: Maker, module: nn.Module) -> nn.Module:
    other = make(SHAPE, CLASSES)
    other.load_state_dict(module.state_dict())
    return other


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_writing_to_the_vector_is_writing_to_the_module(make: Maker) -> None:
    """Every float of the state is a view, and only those; `from_named` is the way back of `named`."""
    flat = FlatModel(make(SHAPE, CLASSES))
    with torch.no_grad():
        flat.weights.fill_(0.25)
    for name, tensor in flat.module.state_dict().items():
        assert bool((tensor == 0.25).all()) == tensor.is_floating_point(), name
    row = torch.arange(float(flat.size))
    assert torch.equal(flat.from_named(flat.named(row)), row)


def test_one_channel_kernels_look_channels_last() -> None:
    """Marked so for speed, with the same values in the same memory."""
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(4 * 4 * 4, 2))
    kernel = module.get_parameter("0.weight").detach().clone()
    flat = FlatModel(module)
    assert torch.equal(module.get_parameter("0.weight"), kernel)
    assert torch.equal(flat.weights[: kernel.numel()], kernel.reshape(-1))
    assert module.get_parameter("0.weight").is_contiguous(memory_format=torch.channels_last)


def test_a_buffer_assigned_anew_is_taken_in() -> None:
    """What the forward pass put in the place of a view is copied into the vector, and the view is back."""
    flat = FlatModel(own_models.running_anew(SHAPE, CLASSES))
    _loss(flat.module)
    where = flat.slices[[layer.name for layer in flat.layers].index("mean")]
    assert torch.equal(flat.weights[where], torch.zeros(6))
    flat.gather()
    moved = flat.weights[where].clone()
    assert bool((moved != 0).all())
    flat.weights[where] = 0.0
    assert torch.equal(flat.module.get_buffer("mean"), torch.zeros(6))


def test_integers_are_copies() -> None:
    """Counting goes on in the module, not in what was handed out; loading puts it back."""
    flat = FlatModel(_batch_norm(SHAPE, CLASSES))
    before = flat.integers
    _loss(flat.module)
    assert int(before["1.num_batches_tracked"]) == 0
    assert int(flat.integers["1.num_batches_tracked"]) == 1
    flat.load_integers({"1.num_batches_tracked": torch.tensor(7)})
    assert int(flat.integers["1.num_batches_tracked"]) == 7


def test_what_is_given_back_is_a_plain_module(tmp_path: Path) -> None:
    """No shared memory, so that safetensors takes it; ties stay ties; no gradients are left."""
    flat = FlatModel(own_models.running_written(SHAPE, CLASSES))
    digest = flat.sha256()
    module = flat.released()
    safetensors.torch.save_file(module.state_dict(), tmp_path / "model.safetensors")
    assert flat.sha256() == digest
    assert all(parameter.grad is None for parameter in module.parameters())
    tied = FlatModel(own_models.tied_bias(SHAPE, CLASSES)).released()
    assert tied.get_parameter("0.bias") is tied.get_parameter("2.bias")


def test_the_digest_tells_models_apart() -> None:
    """By values, by integer buffers, by names; and is the same for the same state."""
    module = _batch_norm(SHAPE, CLASSES)
    flat, same = FlatModel(module), FlatModel(_copy(_batch_norm, module))
    assert flat.sha256() == same.sha256()
    same.load_integers({"1.num_batches_tracked": torch.tensor(1)})
    assert flat.sha256() != same.sha256()
    same.load_integers({"1.num_batches_tracked": torch.tensor(0)})
    with torch.no_grad():
        same.weights[3] += 1e-7
    assert flat.sha256() != same.sha256()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (own_models.double, "is torch.float64; the engine trains float32"),
        (own_models.untrainable, "no parameter that requires a gradient"),
        (own_models.shared_memory, "3.weight lies in another parameter's memory"),
    ],
)
def test_what_cannot_be_trained_is_refused(make: Maker, said: str) -> None:
    """In one sentence, before anything begins."""
    with pytest.raises(TrainingError, match=said):
        FlatModel(make(SHAPE, CLASSES))
