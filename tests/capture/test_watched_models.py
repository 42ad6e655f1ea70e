"""Whatever way a round and a client speak of one model, the gradients of the client are those of the round's layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from watching import flat, only, read, round_of


def model_of(seed: int = 0) -> nn.Sequential:
    """A frozen layer, and buffers, between layers of one shape."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4), nn.Linear(4, 2))
    model[2].requires_grad_(False)
    return model


def compiled(model: nn.Module) -> Any:
    return torch.compile(model, backend="eager")


def wrapped_twice(model: nn.Module) -> nn.Module:
    return nn.DataParallel(compiled(model))


def compiled_inside(model: nn.Module) -> nn.Module:
    """As a whole it is what it was; one of its layers is compiled."""
    assert isinstance(model, nn.Sequential)
    model[3] = compiled(model[3])
    return model


WRAPS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "plain": lambda model: model,
    "DataParallel": nn.DataParallel,
    "compiled": compiled,
    "wrapped twice": wrapped_twice,
    "compiled inside": compiled_inside,
}
GIVEN: dict[str, Callable[[nn.Module], Any]] = {
    **WRAPS,
    "arrays": lambda model: [value.numpy().copy() for value in model.state_dict().values()],
    "parameters": lambda model: [value.detach().numpy().copy() for value in model.parameters()],
}


def gradients(given: str, watched: str) -> dict[str, float]:
    """Of one step, by the place of their layer in the round's model."""
    local = model_of(1)
    with round_of(GIVEN[given](model_of())) as rnd, rnd.client(1) as c:
        c.watch(WRAPS[watched](local))
        optimizer = torch.optim.SGD([one for one in local.parameters() if one.requires_grad], lr=0.1)
        local(torch.arange(12.0).reshape(3, 4)).pow(2).sum().backward()
        optimizer.step()
    with read() as reader:
        (block,) = reader.step_blocks()
        layers = reader.layouts()[0].layers
    names = [name for name, _ in model_of().named_parameters()]
    if given != "parameters":
        names = [name for name, value in model_of().state_dict().items() if value.is_floating_point()]
    assert len(names) == len(layers)
    return {name: float(norm) for name, norm in zip(names, block.stats[0, :, 0], strict=True) if not np.isnan(norm)}


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("watched", WRAPS)
def test_gradients_lie_at_the_layers_of_the_round(given: str, watched: str) -> None:
    """What is put around a module renames it and nothing else; a list goes by order, of a state or of parameters."""
    found = gradients(given, watched)
    assert list(found) == [name for name, one in model_of().named_parameters() if one.requires_grad]
    assert found == pytest.approx(gradients("plain", "plain"))


@pytest.mark.parametrize("given", WRAPS)
@pytest.mark.parametrize("submitted", WRAPS)
@pytest.mark.parametrize("as_state", [True, False])
def test_a_wrapped_model_is_judged_like_the_one_inside(given: str, submitted: str, as_state: bool) -> None:
    """On either side, and as a state dict, whose names have the wrapper's before them."""
    expected = flat(model_of(1).state_dict()) - flat(model_of().state_dict())
    with round_of(GIVEN[given](model_of())) as rnd, rnd.client(1) as c:
        local = WRAPS[submitted](model_of(1))
        c.submit(local.state_dict() if as_state else local)
    assert only().update_norm == pytest.approx(float(expected.norm()), rel=1e-5)


def test_a_list_of_another_model_says_nothing_of_gradients() -> None:
    """Rather than of the wrong layers: as many of them, and of other shapes."""
    with round_of([np.zeros((3, 2), np.float32), np.zeros(2, np.float32)]) as rnd, rnd.client(1) as c:
        local = nn.Linear(3, 2)
        c.watch(local)
        local(torch.ones(1, 3)).sum().backward()
        torch.optim.SGD(local.parameters(), lr=0.1).step()
    with read() as reader:
        assert all(np.isnan(block.stats).all() for block in reader.step_blocks())
    assert only().steps == 1
