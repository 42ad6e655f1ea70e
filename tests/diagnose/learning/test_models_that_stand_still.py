"""FL416: loops in which nothing reaches the model, or nothing is trained; and clients that repeat because of it."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from charted import Clock, alarms, diagnosed, found, looped, model
from torch import nn

from fedvitals.diagnose.chart import Chart
from fedvitals.run import Run
from fedvitals.vocabulary import Severity, Status

STATE = dict[str, torch.Tensor]


def _moved(net: nn.Module, seed: int, by: float = 0.1) -> STATE:
    drawn = torch.Generator().manual_seed(seed)
    return {name: value + by * torch.randn(value.shape, generator=drawn) for name, value in net.state_dict().items()}


def _loop(
    folder: Path, *, rounds: int = 8, applied_from: int = 0, shown: bool = True, by: float = 0.1, repeats: bool = False
) -> Chart:
    """Four clients whose updates are averaged from a round on; the recorder is shown the model, or its first state."""

    def loop(run: Run, clock: Clock) -> None:
        net = model()
        first = copy.deepcopy(net)
        for number in range(rounds):
            with run.round(number, model=net if shown else first) as rnd:
                states = []
                for client in range(4):
                    with rnd.client(client, samples=10) as c:
                        states.append(_moved(net, client if repeats else 4 * number + client, by))
                        c.submit(states[-1], loss=1.0)
                if number >= applied_from:
                    net.load_state_dict({name: sum(one[name] for one in states) / 4 for name in states[0]})
                rnd.evaluated(loss=2.0 - 0.1 * number if shown is False else 2.0)

    return looped(folder, loop)


def test_an_average_that_is_not_applied(tmp_path: Path) -> None:
    """It is critical, for as long as it lasts; a run in which it is applied, or two rounds long, is not told of."""
    (one,) = found(_loop(tmp_path / "never", applied_from=99), "FL416")
    assert (one.severity, one.rounds) == (Severity.CRITICAL, tuple(range(7)))  # after the last no model was seen
    (late,) = found(_loop(tmp_path / "late", applied_from=4), "FL416")
    assert late.rounds == (0, 1, 2, 3)
    assert found(_loop(tmp_path / "twice", applied_from=2), "FL416") == ()


def test_another_model_is_trained_than_is_shown(tmp_path: Path) -> None:
    """The evaluation gets better: nothing is wrong with the training, but with what is recorded of it."""
    (one,) = found(_loop(tmp_path, shown=False), "FL416")
    assert one.severity is Severity.WARNING
    assert "another model is trained" in one.why


def test_clients_that_change_nothing(tmp_path: Path) -> None:
    """All of them: an optimizer that holds other parameters."""
    (one,) = found(_loop(tmp_path, by=0.0), "FL416")
    assert (one.severity, one.rounds, one.clients) == (Severity.CRITICAL, tuple(range(8)), ())
    assert "sent back the model" in one.why


def test_nobody_is_stale_where_everybody_repeats(tmp_path: Path) -> None:
    """On a model that stands still whoever trains on all rows at once sends the same again."""
    chart = _loop(tmp_path, applied_from=99, repeats=True)
    assert [code for code, _ in alarms(chart)] == ["FL416"]
    assert found(chart, "FL605") == ()


def test_it_takes_three_rounds(tmp_path: Path) -> None:
    """Fewer cannot be judged, and a run that failed in the first has none."""
    seen = diagnosed(_loop(tmp_path, rounds=2), "FL416")
    assert (list(seen.not_observable), seen.run.status) == (["FL416"], Status.FINISHED)


@pytest.mark.parametrize("averaged", [True, False])
def test_running_statistics_that_are_not_averaged(tmp_path: Path, averaged: bool) -> None:
    """The server averages the parameters alone: the layers are named, and a whole average is not told of."""

    def loop(run: Run, clock: Clock) -> None:
        net = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
        for number in range(6):
            with run.round(number, model=net) as rnd:
                states = []
                for place in range(4):
                    with rnd.client(place, samples=10) as client:
                        own = copy.deepcopy(net)
                        own(torch.randn(8, 4))
                        with torch.no_grad():
                            next(own.parameters()).add_(0.1 * torch.randn(5, 4))
                        states.append(own.state_dict())
                        client.submit(states[-1], loss=1.0)
                kept = dict(net.named_parameters()) if not averaged else states[0]
                net.load_state_dict({name: sum(one[name] for one in states) / 4 for name in kept}, strict=False)
                rnd.evaluated(loss=2.0 - 0.1 * number)

    findings = found(looped(tmp_path, loop), "FL416")
    assert [one.layers for one in findings] == ([] if averaged else [("1.running_mean", "1.running_var")])
