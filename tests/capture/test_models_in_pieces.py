"""Models compared and subtracted as they lie, tensor by tensor: the same as of their copies, or left to those."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from fedvitals.capture.tensors import Flattener, kernel

compiled = pytest.mark.skipif(not kernel.in_use(), reason="no C compiler made the kernel here: ./script/kernel")


class Halving(nn.Linear):
    """Tells of half its weights."""

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "weight"] = destination[prefix + "weight"] / 2


def hooked() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 2))
    model[0].register_state_dict_post_hook(lambda _, state, prefix, __: state.update({f"{prefix}bias": torch.ones(2)}))  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return model


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    return model


MODELS: dict[str, Callable[[], nn.Module]] = {
    "plain": lambda: nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Sequential(nn.Linear(5, 2, bias=False))),
    "a single layer": lambda: nn.Linear(3, 2),
    "buffers and counts": lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)),
    "halves": lambda: nn.Linear(3, 2).half(),
    "doubles": lambda: nn.Linear(3, 2).double(),
    "tied": tied,
    "with a say of its own": lambda: nn.Sequential(Halving(3, 2)),
    "with a hook": hooked,
    "empty": lambda: nn.Sequential(nn.ReLU()),
}
READ_AS_THEY_LIE = ("plain", "a single layer", "buffers and counts", "tied", "empty")


def moved(model: nn.Module) -> nn.Module:
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(0.25)
    return other


@pytest.mark.parametrize("as_module", [True, False], ids=["module", "state dict"])
@pytest.mark.parametrize("name", MODELS)
def test_differences_are_those_of_copies(name: str, as_module: bool) -> None:
    """Bit by bit, whatever the model is and however it is handed over."""
    model = MODELS[name]()
    flattener = Flattener(model)
    start, other = flattener.row(model), moved(model)
    source = other if as_module else other.state_dict()
    assert torch.equal(flattener.difference(source, start), flattener.row(other) - start)
    assert not flattener.surely_is(source, start) or not flattener.size


@pytest.mark.parametrize("name", MODELS)
def test_a_difference_is_put_into_its_place(name: str) -> None:
    """Where a place is given and the model can be read as it lies; what is told is the same wherever it is."""
    model = MODELS[name]()
    flattener = Flattener(model)
    start, other, place = flattener.row(model), moved(model), torch.full((flattener.size,), torch.nan)
    found = flattener.difference(other, start, place)
    assert torch.equal(found, flattener.row(other) - start)
    assert (found is place) == (kernel.in_use() and name in READ_AS_THEY_LIE)


@compiled
@pytest.mark.parametrize("name", MODELS)
def test_the_same_model_is_known_without_a_copy(name: str) -> None:
    """Where its tensors can be read as they lie; a module that tells of its state in its own way is asked for it."""
    model = MODELS[name]()
    flattener = Flattener(model)
    assert flattener.surely_is(copy.deepcopy(model), flattener.row(model)) == (name in READ_AS_THEY_LIE)


@compiled
@given(st.integers(0, 5), st.sampled_from([float("nan"), -0.0, 1e-45, float("inf")]))
def test_one_bit_is_a_difference(place: int, value: float) -> None:
    """A NaN that stays where it is is none; a zero that changed its sign is one."""
    model = nn.Linear(3, 2, bias=False)
    flattener, row = Flattener(model), torch.zeros(6)
    with torch.no_grad():
        model.weight.zero_()
        assert flattener.surely_is(model, row)
        model.weight.view(-1)[place] = value
        assert not flattener.surely_is(model, row)
        assert flattener.surely_is(model, flattener.row(model))


def test_what_does_not_fit_is_said_as_ever() -> None:
    """Another shape, a layer that is missing, and tensors that lie in no order."""
    flattener = Flattener(nn.Linear(3, 2))
    start = torch.zeros(flattener.size)
    with pytest.raises(ValueError, match="weight has shape"):
        flattener.difference({"weight": torch.zeros(2, 4), "bias": torch.zeros(2)}, start)
    with pytest.raises(ValueError, match="bias is missing"):
        flattener.difference({"weight": torch.zeros(2, 3)}, start)
    turned: dict[str, Tensor] = {"weight": torch.arange(6.0).view(3, 2).t(), "bias": torch.ones(2)}
    assert flattener.difference(turned, start).tolist() == [0, 2, 4, 1, 3, 5, 1, 1]


@pytest.mark.parametrize("name", MODELS)
def test_a_state_is_copied_into_its_place(name: str) -> None:
    """In one go where it can be read as it lies, and then the same as in steps; else it is left to those."""
    model = MODELS[name]()
    flattener, other = Flattener(model), moved(model)
    found = flattener.copied(other.state_dict(), torch.empty)
    read = ("with a say of its own", "with a hook", *READ_AS_THEY_LIE)  # a state dict has nothing to say any more
    assert (found is not None) == (kernel.in_use() and name in read and flattener.size > 0)
    assert found is None or torch.equal(found, flattener.row(other))


@compiled
def test_only_a_state_of_just_these_layers_is_copied() -> None:
    """Counts beside them are none; another layer, another shape, a missing one, a turned one and no room are."""
    state = nn.Linear(3, 2).state_dict()
    flattener = Flattener(state)
    assert flattener.copied(state | {"seen": torch.tensor(3), "extra": "of a module"}, torch.empty) is not None
    others: list[Any] = [
        state | {"gate": torch.zeros(2)},
        state | {"weight": torch.zeros(2, 4)},
        {"weight": state["weight"]},
        state | {"weight": torch.zeros(3, 2).t()},
        state | {"weight": state["weight"].to(torch.bfloat16)},
        state | {"weight": state["weight"].numpy()},
        [tensor.numpy() for tensor in state.values()],
    ]
    assert [flattener.copied(other, torch.empty) for other in others] == [None] * len(others)
    assert flattener.copied(state, lambda size: None) is None


@pytest.mark.parametrize("name", MODELS)
def test_what_a_state_has_that_is_no_layer(name: str) -> None:
    """Is what has no direction, and nothing in most models; none of it is unknown, so no tensor is looked at."""
    state = MODELS[name]().state_dict()
    counts = [key for key, value in state.items() if not value.is_floating_point()]
    flattener = Flattener(state)
    assert list(flattener.left_out(state)) == counts
    assert flattener.beside(state) == {}
