"""Models with counters (BatchNorm's `num_batches_tracked`), of which a loop that averages everything makes floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load
from torch import Tensor, nn
from watching import read, started

COUNTER = "1.num_batches_tracked"


def with_counter() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2))


def trained(model: dict[str, Any], seed: int) -> dict[str, Tensor]:
    """A client's state: it loads the model, so its counter is whole again, and has counted three batches more."""
    generator = torch.Generator().manual_seed(seed)
    state = {name: torch.as_tensor(value) for name, value in model.items()}
    moved = {name: value + 0.01 * torch.randn(value.shape, generator=generator) for name, value in state.items()}
    return moved | {COUNTER: state[COUNTER].long() + 3}


def as_list(state: dict[str, Any]) -> list[np.ndarray]:
    return [np.asarray(value) for value in state.values()]


FORMS: dict[str, Callable[[dict[str, Any]], Any]] = {"list": as_list, "dict": dict}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("floats", ["of the model", "of the clients too"])
def test_a_counter_that_was_averaged_is_no_layer(form: str, floats: str) -> None:
    """It stays left out in later rounds: every client is judged, by what it trained alone."""
    names, given = list(with_counter().state_dict()), FORMS[form]
    model: dict[str, Any] = dict(with_counter().state_dict())
    expected = []
    with started() as run:
        for number in range(3):
            with run.round(number, model=given(model)) as rnd:
                states = [trained(model, 10 * number + seed) for seed in range(2)]
                for client, state in enumerate(states):
                    sent = {n: v.double() for n, v in state.items()} if floats == "of the clients too" else state
                    with rnd.client(client) as c:
                        c.submit(given(sent))
                    apart = [(state[n] - model[n]).flatten() for n in names if n != COUNTER]
                    expected.append(float(torch.cat(apart).norm()))
            model = {name: sum(state[name] for state in states) / 2 for name in names}
    with read() as reader:
        assert reader.failures() == []
        (layout,) = reader.layouts()
        found = [one.update_norm for one in reader.participations()]
    assert len(layout.layers) == len(names) - 1
    assert found == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("form", FORMS)
def test_a_kept_model_has_its_averaged_counters(form: str) -> None:
    """As they are by now: what was kept of a later round can be loaded like that of the first."""
    first = with_counter().state_dict()
    later = {name: value * 0.5 for name, value in first.items()} | {COUNTER: torch.tensor(1.5)}
    with started(keep_models=True) as run:
        for number, model in enumerate((first, later)):
            with run.round(number, model=FORMS[form](dict(model))):
                pass
    with read() as reader:
        kept = [load(reader.blob(blob.name)) for blob in reader.blobs()]
    for found, model in zip(kept, (first, later), strict=True):
        assert len(found) == len(first)
        counter = found[COUNTER if form == "dict" else f"array.{list(first).index(COUNTER)}"]
        assert float(counter) == float(model[COUNTER])
