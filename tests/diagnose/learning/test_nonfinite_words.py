"""FL405: what it says of losses is what was reported of them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from charted import Clock, found, looped, model

from fedvitals.run import Run


@pytest.mark.parametrize(
    ("value", "loss", "said"),
    [
        (1.0, math.inf, "client 2 reported a loss that is not finite in round 1"),
        (math.nan, math.inf, "sent 3 non-finite values in 2.bias and reported a loss that is not finite in round 1"),
        (math.nan, 1.0, "sent 3 non-finite values in 2.bias while every loss it reported was finite in round 1"),
        (math.nan, math.nan, "sent 3 non-finite values in 2.bias in round 1"),
        (math.nan, None, "sent 3 non-finite values in 2.bias in round 1"),
    ],
)
def test_losses_are_told_as_they_were(tmp_path: Path, value: float, loss: float | None, said: str) -> None:
    """Finite, not finite, or unknown."""

    def loop(run: Run, clock: Clock) -> None:
        torch.manual_seed(0)
        net = model()
        for number in range(2):
            with run.round(number, model=net) as rnd:
                for client in range(4):
                    with rnd.client(client, samples=10) as c:
                        state = {name: one + 0.1 * torch.randn(one.shape) for name, one in net.state_dict().items()}
                        bad = client == 2 and number == 1
                        c.submit(
                            state | ({"2.bias": value * state["2.bias"]} if bad else {}), loss=loss if bad else 1.0
                        )

    (one,) = found(looped(tmp_path, loop), "FL405")
    assert said in one.why
