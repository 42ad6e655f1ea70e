"""FL905: what is submitted is a difference and no model."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest
import torch
from charted import Clock, found, looped, model

from fedvitals.diagnose.chart import Chart
from fedvitals.run import Run


def _loop(folder: Path, differing: Collection[int], keeps: float = 1.0) -> Chart:
    """Six clients, of whom these hand over what their training changed; the others keep so much of the model."""

    def loop(run: Run, clock: Clock) -> None:
        torch.manual_seed(0)
        net = model()
        for number in range(4):
            with run.round(number, model=net) as rnd:
                for client in range(6):
                    with rnd.client(client, samples=10) as c:
                        step = {name: 0.05 * torch.randn(value.shape) for name, value in net.state_dict().items()}
                        trained = {name: keeps * value + step[name] for name, value in net.state_dict().items()}
                        c.submit(step if client in differing else trained, loss=1.0)

    return looped(folder, loop)


@pytest.mark.parametrize(("differing", "named"), [(range(6), ()), ((2,), ("2",)), ((), None)])
def test_differences_are_told_from_models(
    tmp_path: Path, differing: Collection[int], named: tuple[str, ...] | None
) -> None:
    """Of everybody it is told without names, of one client by its name, of models not at all."""
    assert [one.clients for one in found(_loop(tmp_path, differing), "FL905")] == ([] if named is None else [named])


def test_a_large_step_is_no_difference(tmp_path: Path) -> None:
    """Half of every weight gone in one round is a bad training of a model."""
    assert found(_loop(tmp_path, (), keeps=0.5), "FL905") == ()


def test_what_it_explains_stands_below(tmp_path: Path) -> None:
    """Who hands over a difference is not accused of what its update then looks like."""
    (one,) = [one for one in found(_loop(tmp_path, (2,)), "FL6", "FL905") if "2" in one.clients]
    assert one.code == "FL905"
