"""Updates that are nearly the same: copies while the model learns, no wonder once it has died."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from charted import Clock, found, looped, model

from fedvitals.run import Run

COPIERS = ("3", "5")
STATE = dict[str, torch.Tensor]


def _run(folder: Path, losses: list[float], noise: float) -> list[tuple[str, ...]]:
    """Eight clients; in the last two rounds two of them send the same update but for noise. Gives who is named."""

    def loop(run: Run, clock: Clock) -> None:
        torch.manual_seed(0)
        net = model(outputs=40)
        for number, loss in enumerate(losses):
            shared = _moved(net.state_dict(), 0.1)
            with run.round(number, model=net) as rnd:
                for place in range(8):
                    alike = str(place) in COPIERS and number >= len(losses) - 2
                    with rnd.client(place, samples=20) as client:
                        client.step(loss)
                        client.submit(_moved(shared, noise) if alike else _moved(net.state_dict(), 0.1), loss=loss)

    return [tuple(sorted(one.clients)) for one in found(looped(folder, loop), "FL606")]


def _moved(state: STATE, by: float) -> STATE:
    return {name: value + by * torch.randn(value.shape) for name, value in state.items()}


HEALTHY, DEAD = [2.0, 1.8, 1.6, 1.5, 1.4], [2.0, 1.8, 1.6, 30.0, 30.0]


@pytest.mark.parametrize(
    ("losses", "noise", "named"),
    [(HEALTHY, 1e-3, [COPIERS]), (DEAD, 1e-3, []), (DEAD, 0.0, [COPIERS])],
    ids=["nearly the same", "nearly the same, of a dead model", "the same, of a dead model"],
)
def test_a_dead_model_makes_updates_alike(
    tmp_path: Path, losses: list[float], noise: float, named: list[tuple[str, ...]]
) -> None:
    """Only what is equal to the last bit is held against clients whose model's loss has leapt."""
    assert _run(tmp_path, losses, noise) == named
