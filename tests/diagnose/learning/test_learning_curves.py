"""Losses as they come from a loop of one's own, without clients: where they go is told from the series alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from charted import Clock, found, looped, model

from fedvitals.diagnose.learning.curves import trend
from fedvitals.run import Run

RNG = np.random.default_rng(0)
FALLING = 2.3 * np.exp(-np.arange(30) / 8) + 0.1


def _codes(folder: Path, losses: Sequence[float]) -> list[str]:
    def loop(run: Run, clock: Clock) -> None:
        for number, loss in enumerate(losses):
            with run.round(number) as rnd:
                clock.go_on(1)
                rnd.evaluated(loss=float(loss))

    return [one.code for one in found(looped(folder, loop), "FL402", "FL403", "FL404", "FL406")]


@pytest.mark.parametrize(
    ("losses", "codes"),
    [
        (FALLING, []),
        (FALLING + 0.02 * RNG.normal(size=30), []),
        (np.concatenate([FALLING[:10], np.geomspace(0.8, 40, 15)]), ["FL402"]),
        (np.concatenate([FALLING[:10], [np.nan] * 5]), ["FL402"]),
        (np.where(np.arange(30) % 2, 0.6, 1.4) + np.linspace(0.9, 0, 30), ["FL403"]),
        (np.concatenate([np.linspace(2.3, 1.7, 6), 1.7 + 0.005 * RNG.normal(size=24)]), ["FL404"]),
        (np.linspace(2.3, 2.0, 30), ["FL406"]),
    ],
    ids=["healthy", "healthy and noisy", "diverges", "is lost", "swings", "stands", "slow"],
)
def test_a_series_tells_where_it_goes(tmp_path: Path, losses: Sequence[float], codes: list[str]) -> None:
    """Each shape has its own finding, and a healthy one has none."""
    assert _codes(tmp_path, losses) == codes


def test_a_trend_is_tested_not_guessed() -> None:
    """Noise has no trend, a slow fall under noise has one, however many values there are."""
    noise = np.random.default_rng(1).normal(size=2000)
    assert abs(trend(noise)) < 3
    assert trend(noise - np.arange(2000) / 500) < -10
    assert trend(np.zeros(50)) == 0


def test_a_slow_fall_is_told_in_rounds(tmp_path: Path) -> None:
    """Also where only every fifth of them is evaluated."""

    def loop(run: Run, clock: Clock) -> None:
        for number in range(60):
            with run.round(number) as rnd:
                clock.go_on(1)
                if number % 5 == 0:
                    rnd.evaluated(loss=2.3 - 0.003 * number)

    (one,) = found(looped(tmp_path, loop), "FL406")
    assert "in 55 rounds" in one.why


def test_a_fall_that_comes_to_rest_is_a_plateau(tmp_path: Path) -> None:
    """Told once, with the slow fall below it, and without counting rounds that nobody will train."""

    def loop(run: Run, clock: Clock) -> None:
        net = model(outputs=10)
        for number in range(20):
            with run.round(number, model=net) as rnd:
                clock.go_on(1)
                rnd.evaluated(loss=2.1 + 0.2 * 0.4**number)

    chart = looped(tmp_path, loop)
    (one,) = found(chart, "FL404", "FL406")
    assert (one.code, [below.code for below in one.symptoms]) == ("FL404", ["FL406"])
    (slow,) = found(chart, "FL406")
    assert "not get to half of the start in ten times as many" in slow.why


@pytest.mark.parametrize(("factor", "told"), [(1.0, False), (8.0, True)])
def test_a_server_that_sums_instead_of_averaging(tmp_path: Path, factor: float, told: bool) -> None:
    """It moves the model further than any update: that is said, and what to do is no lower learning rate."""

    def loop(run: Run, clock: Clock) -> None:
        torch.manual_seed(0)
        net = model()
        for number in range(8):
            with run.round(number, model=net) as rnd:
                before = {name: value.clone() for name, value in net.state_dict().items()}
                step = {name: 0.1 * torch.randn(value.shape) for name, value in before.items()}
                for client in range(4):
                    with rnd.client(client, samples=10) as c:
                        c.submit({name: value + step[name] for name, value in before.items()}, loss=2.0**number)
                net.load_state_dict({name: value + factor * step[name] for name, value in before.items()})
                rnd.evaluated(loss=2.0 * 3.0**number)

    (one,) = found(looped(tmp_path, loop), "FL402")
    assert ("no average does that" in one.why) is told
    assert ("sum of its weights" in one.next[-1].text) is told
