"""FL417: loops whose model is one client's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from charted import Clock, found, looped, model, trained

from fedvitals.diagnose.chart import Chart
from fedvitals.run import Run
from fedvitals.vocabulary import Severity

STATE = dict[str, torch.Tensor]


def _loop(folder: Path, pick: Callable[[int, list[STATE]], STATE], turned: bool = False) -> Chart:
    """Four clients, in turned order if asked, and what the server makes of their models in a round."""

    def loop(run: Run, clock: Clock) -> None:
        torch.manual_seed(0)
        net = model()
        for number in range(7):
            with run.round(number, model=net) as rnd:
                states = []
                for place in range(4):
                    with rnd.client((place + number * turned) % 4, samples=10) as c:
                        clock.go_on(0.1)
                        states.append(
                            {name: one + 0.1 * torch.randn(one.shape) for name, one in net.state_dict().items()}
                        )
                        c.submit(states[-1], loss=1.0)
                net.load_state_dict(pick(number, states))

    return looped(folder, loop)


def _mean(number: int, states: list[STATE]) -> STATE:
    return {name: torch.stack([one[name] for one in states]).mean(0) for name in states[0]}


@pytest.mark.parametrize(
    ("pick", "turned", "whose"),
    [
        (lambda number, states: states[1], False, "client 1"),
        (lambda number, states: states[-1], True, "the client that came last"),
        (lambda number, states: states[0], True, "the client that came first"),
    ],
)
def test_whose_model_it_is(tmp_path: Path, pick: Callable[[int, list[STATE]], STATE], turned: bool, whose: str) -> None:
    """One client's, or whoever's place it is in the loop."""
    (one,) = found(_loop(tmp_path, pick, turned), "FL417")
    assert (one.severity, one.evidence["whose"], one.rounds) == (Severity.CRITICAL, whose, tuple(range(6)))


@pytest.mark.parametrize("pick", [_mean, lambda number, states: states[(5, 2, 3, 1, 4, 0, 7)[number] % 4]])
def test_an_average_and_a_pick_by_merit(tmp_path: Path, pick: Callable[[int, list[STATE]], STATE]) -> None:
    """Neither is told of."""
    assert found(_loop(tmp_path, pick), "FL417") == ()


def test_a_job_that_picks_one_on_purpose(tmp_path: Path) -> None:
    """It does what it was told, also where that is the same client each time."""
    chart = _loop(tmp_path, lambda number, states: states[1])
    meant = replace(chart, run=replace(chart.run, config={"server": {"aggregator": "krum"}}), _shared={})
    assert found(meant, "FL417") == ()


def test_a_healthy_job(tmp_path: Path) -> None:
    """Nothing is told of it."""
    assert found(trained(tmp_path, {"train.rounds": 8}), "FL417") == ()
