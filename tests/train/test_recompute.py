"""Activations computed again in the backward pass: the same training, bit for bit, from fewer kept activations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from own_models import writes_in_place
from small_jobs import Told, run, small, with_file
from torch import Tensor, nn

from fedvitals.errors import JobError, TrainingError
from fedvitals.train.recompute import recompute_activations

DEEP = [8] * 6


@pytest.mark.parametrize(
    "changes",
    [
        {"model.hidden": DEEP},
        {"model.hidden": DEEP, "model.dropout": 0.4},
        {"model.hidden": DEEP, "model.norm": "batch"},
        {"model.hidden": DEEP, "model.norm": "group", "train.accumulate": 3, "train.momentum": 0.9},
        {"model.kind": "cnn", "model.kernel": 3, "model.norm": "batch", "data.source": "pictures"},
        {"model.kind": "own_models:writes_in_place"},
        {"model.kind": "own_models:nested"},
        {"model.kind": "own_models:centred"},
    ],
    ids=lambda changes: "-".join(str(value) for value in changes.values()).replace("own_models:", ""),
)
def test_the_weights_are_the_same_to_the_last_bit(changes: dict[str, Any], tmp_path: Path) -> None:
    """Dropout draws its masks again, running statistics are written once, and buffers are read as they were."""
    changes = with_file(changes, tmp_path)
    plain, recomputed = (run(small({**changes, "train.checkpoint": value})) for value in (False, True))
    assert plain.weights_sha256 == recomputed.weights_sha256


def test_layers_before_the_last_segment_run_twice() -> None:
    """Nothing is kept of the segments before the last: their layers compute once more in the backward pass."""
    module = nn.Sequential(*(nn.Linear(4, 4) for _ in range(9)))
    calls = [0] * 9
    for number, layer in enumerate(module):
        layer.register_forward_hook(lambda *_, number=number: calls.__setitem__(number, calls[number] + 1))
    recompute_activations(module, draws=False)
    module(torch.ones(2, 4)).sum().backward()
    assert calls == [2] * 6 + [1] * 3


def test_less_is_kept_for_the_backward_pass() -> None:
    """Of a hundred layers, a fifth of the bytes or less is alive between the passes."""

    def kept_bytes(module: nn.Module) -> int:
        sizes: list[int] = []

        def keep(tensor: Tensor) -> Tensor:
            sizes.append(tensor.nbytes)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            module(torch.ones(64, 16))
        return sum(sizes)

    def chain() -> nn.Sequential:
        return nn.Sequential(*(part for _ in range(50) for part in (nn.Linear(16, 16), nn.Tanh())))

    plain, recomputed = chain(), chain()
    recompute_activations(recomputed, draws=False)
    assert 0 < kept_bytes(recomputed) < kept_bytes(plain) / 5


def test_names_and_evaluation_stay() -> None:
    """The module has the same state, and answers the same without gradients."""
    module = writes_in_place((5,), 3)
    names, x = list(module.state_dict()), torch.ones(2, 5)
    with torch.no_grad():
        before = module(x)
        recompute_activations(module, draws=False)
        assert torch.equal(module(x), before)
    assert list(module.state_dict()) == names


@pytest.mark.parametrize("changes", [{}, {"execute.workers": 1}])
def test_clients_are_trained_one_by_one(changes: dict[str, Any]) -> None:
    """A batch of clients is not recomputed; the pick says why."""
    told = Told()
    run(small({"model.hidden": DEEP, "train.checkpoint": True, **changes}, executor="vectorised"), progress=told)
    assert told.beginning[1] in ("processes", "sequential")
    assert "train.checkpoint recomputes the activations of one client at a time" in told.beginning[2]


@pytest.mark.parametrize(
    ("model", "found"), [("own_models:no_bias", "has 3 layers"), ("own_models:plain", "has no nn.Sequential")]
)
def test_a_model_without_a_chain_is_refused(model: str, found: str) -> None:
    """With what was found, and what would be right."""
    with pytest.raises(JobError, match=f"train.checkpoint = true .*{found}; right is a chain of at least 4 layers"):
        run(small({"model.kind": model, "train.checkpoint": True}))


def test_a_layer_that_overwrites_its_input_unsaid_is_told_of() -> None:
    """Its segment could not be computed again from what is left: an error, not a wrong gradient."""
    with pytest.raises(TrainingError, match="overwrites its input, which is needed again"):
        run(small({"model.kind": "own_models:overwrites_unsaid", "train.checkpoint": True}))
