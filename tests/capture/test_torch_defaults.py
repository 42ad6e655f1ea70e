"""Torch's defaults belong to the user: what is recorded depends on none of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn
from watching import batches, moved, only, read, round_of, started, train

from fedvitals.capture.tensors import kernel

WIDE = 600  # its square is more than lies on a shelf


@pytest.fixture(params=["meta", torch.bfloat16, torch.float64], ids=str)
def default(request: pytest.FixtureRequest) -> Iterator[object]:
    """Another default device or type than torch begins with, while the test asks for it."""
    before = torch.get_default_dtype()
    yield request.param
    torch.set_default_device(None)
    torch.set_default_dtype(before)


def _set(default: object) -> None:
    if isinstance(default, torch.dtype):
        torch.set_default_dtype(default)
    else:
        torch.set_default_device("meta")


@pytest.mark.parametrize("compiled", [True, False])
def test_an_update_is_judged_whatever_the_defaults_are(
    default: object, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large one, by the kernel and by torch: its norm and the statistics of its layers."""
    if not compiled:
        monkeypatch.setattr(kernel, "library", lambda: None)
    model = nn.Linear(WIDE, WIDE)
    state, before = moved(model), {name: tensor.clone() for name, tensor in model.state_dict().items()}
    expected = float(torch.cat([(state[name] - before[name]).flatten() for name in before]).norm())
    with round_of(model) as rnd:
        _set(default)
        with rnd.client(1) as c:
            c.submit(state)
    assert only().update_norm == pytest.approx(expected, rel=1e-5)
    with read() as reader:
        assert len(reader.update_stats(only())) == 2
        assert reader.run().health["troubles"] == {}


def test_gradients_are_measured_whatever_the_defaults_are(default: object) -> None:
    """Their norms are those of the gradients, not of memory read as another type."""
    model, rows = nn.Linear(4, 3), batches(1)
    with started() as run, run.round(0, model=model) as rnd, rnd.client(1) as c:
        c.watch(model)
        _set(default)
        train(model, rows)
        expected = [float(np.linalg.norm(one.grad.numpy())) for one in model.parameters() if one.grad is not None]
        c.submit(model.state_dict())
    with read() as reader:
        (block,) = reader.step_blocks()
    assert block.stats[0, :, 0] == pytest.approx(expected, rel=1e-5)
