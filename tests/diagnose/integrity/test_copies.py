"""Updates that are nearly the same: copies while the model learns, no wonder once it has died."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from charted import Clock, found, looped, model

from fedvitals.diagnose.chart import Chart
from fedvitals.run import Run
from fedvitals.vocabulary import Grade, Severity

COPIERS = ("3", "5")
STATE = dict[str, torch.Tensor]


def _run(folder: Path, losses: list[float], noise: float, swarm: float = 0.0) -> list[tuple[str, ...]]:
    """Who is named."""
    return [tuple(sorted(one.clients)) for one in found(_charted(folder, losses, noise, swarm), "FL606")]


def _charted(folder: Path, losses: list[float], noise: float, swarm: float = 0.0) -> Chart:
    """Eight clients; in the last two rounds two of them send the same update but for noise, and a third one is as near
    to them as `swarm` says, if at all."""

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
                        near = noise if alike else swarm if swarm and place == 6 else None
                        sent = _moved(net.state_dict(), 0.1) if near is None else _moved(shared, near)
                        client.submit(sent, loss=loss)

    return looped(folder, loop)


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


def test_nearly_the_same_once_is_a_suspicion(tmp_path: Path) -> None:
    """Chance may do it once; the same clients again are accused."""
    chart = _charted(tmp_path, HEALTHY, 1e-3)
    (once,) = found(chart.until(len(HEALTHY) - 2), "FL606")
    (again,) = found(chart, "FL606")
    assert (once.grade, once.severity) == (Grade.SUSPECT, Severity.INFO)
    assert (again.grade, again.severity) == (Grade.ACCUSED, Severity.WARNING)


def test_neighbours_in_a_swarm_are_no_copies(tmp_path: Path) -> None:
    """A third one is nearly as near to two as they are to each other: they have like rows, and nobody copied."""
    assert _run(tmp_path, HEALTHY, 1e-3, swarm=3.5e-3) == []


@pytest.mark.parametrize(("equal", "told"), [(6, ["6 of 6"]), (4, ["4 of 6"]), (2, [])])
def test_clients_with_the_same_rows_are_told_of_as_a_run(tmp_path: Path, equal: int, told: list[str]) -> None:
    """Most of a cohort sends one update: nobody is accused of copying, nor of sending its own again, and it is told."""

    def loop(run: Run, clock: Clock) -> None:
        torch.manual_seed(0)
        net = model()
        for number in range(4):
            shared = _moved(net.state_dict(), 0.1)
            with run.round(number, model=net) as rnd:
                for place in range(6):
                    with rnd.client(place, samples=20) as client:
                        client.submit(shared if place < equal else _moved(net.state_dict(), 0.1), loss=1.0)

    findings = [one for one in found(looped(tmp_path, loop), "FL605", "FL606") if not one.clients]
    assert [one.why[:6] for one in findings] == told
