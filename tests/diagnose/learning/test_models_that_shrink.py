"""FL418: servers that divide by too much, or load differences as if they were a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from charted import Clock, diagnosed, found, looped, model, trained

from fedvitals.diagnose.chart import Chart
from fedvitals.run import Run
from fedvitals.vocabulary import Severity

STATE = dict[str, torch.Tensor]
Server = Callable[[STATE, list[STATE]], STATE]


def _mean(before: STATE, states: list[STATE]) -> STATE:
    return {name: torch.stack([one[name] for one in states]).mean(0) for name in before}


def _halved(before: STATE, states: list[STATE]) -> STATE:
    return {name: 0.5 * one for name, one in _mean(before, states).items()}


def _differences(before: STATE, states: list[STATE]) -> STATE:
    return {name: one - before[name] for name, one in _mean(before, states).items()}


def _loop(folder: Path, server: Server, losses: float = 1.1) -> Chart:
    """Four clients that move the model a little, and what the server makes of it."""

    def loop(run: Run, clock: Clock) -> None:
        net = model()
        for number in range(12):
            with run.round(number, model=net) as rnd:
                before = {name: one.clone() for name, one in net.state_dict().items()}
                states = []
                for place in range(4):
                    with rnd.client(place, samples=10) as client:
                        clock.go_on(0.1)
                        states.append({name: one + 1e-3 * torch.randn(one.shape) for name, one in before.items()})
                        client.submit(states[-1], loss=losses)
                net.load_state_dict(server(before, states))
                rnd.evaluated(loss=losses)

    return looped(folder, loop)


@pytest.mark.parametrize("server", [_halved, _differences])
def test_a_server_whose_model_shrinks(tmp_path: Path, server: Server) -> None:
    """All matrices are told, since when and how fast, and what to change is on the server; a standing loss follows."""
    findings = found(_loop(tmp_path, server), "FL4", "FL501")
    (one,) = findings
    assert (one.code, one.severity, one.layers) == ("FL418", Severity.CRITICAL, ("0.weight", "2.weight"))
    assert one.rounds == tuple(range(11))
    assert one.evidence["last_norm"] < 0.1 * one.evidence["first_norm"]
    assert "divide" in one.next[0].text


def test_what_a_round_leaves(tmp_path: Path) -> None:
    """A server that divides by twice as many leaves half."""
    (one,) = found(_loop(tmp_path, _halved), "FL418")
    assert one.evidence["round_leaves_ratio"] == pytest.approx(0.5, abs=0.02)


def test_an_average_does_not_shrink(tmp_path: Path) -> None:
    """Nor does a healthy job's, whose first model may be zeros."""
    assert found(_loop(tmp_path / "mean", _mean), "FL418") == ()
    zeros = trained(tmp_path / "zeros", {"train.rounds": 8, "model.kind": "learning_models:zero_logistic"})
    assert "FL418" in diagnosed(zeros, "FL418").not_observable
    assert found(trained(tmp_path / "healthy", {"train.rounds": 8}), "FL418") == ()


def test_a_model_that_learns_may_shrink(tmp_path: Path) -> None:
    """As strong weight decay makes it."""
    assert found(_loop(tmp_path, _halved, losses=0.3), "FL418") == ()
