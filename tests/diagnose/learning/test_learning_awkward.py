"""Runs that lack what rules look at: each rule of learning and fairness answers or says that it cannot see."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from charted import Clock, diagnosed, found, looped, model

from fedvitals.diagnose.heterogeneity import RULES as FAIRNESS
from fedvitals.diagnose.learning import RULES as LEARNING
from fedvitals.diagnose.pages import SECTIONS, sections
from fedvitals.run import Run

Loop = Callable[[Run, Clock], None]


def _moved(net: torch.nn.Module, by: float) -> dict[str, torch.Tensor]:
    return {name: value + by * torch.randn(value.shape) for name, value in net.state_dict().items()}


def _nothing(run: Run, clock: Clock) -> None:
    pass


def _one_client(run: Run, clock: Clock) -> None:
    net = model()
    for number in range(12):
        with run.round(number, model=net) as rnd, rnd.client("only", samples=10) as client:
            client.submit(_moved(net, 0.1), loss=1.0)


def _one_round(run: Run, clock: Clock) -> None:
    net = model()
    with run.round(0, model=net) as rnd:
        for name in "abcde":
            with rnd.client(name) as client:
                client.submit(_moved(net, 0.1))


def _all_equal(run: Run, clock: Clock) -> None:
    net = model()
    for number in range(10):
        with run.round(number, model=net) as rnd:
            for name in "abcd":
                with rnd.client(name, samples=0) as client:
                    client.submit(net.state_dict(), loss=0.0)
            rnd.evaluated(loss=0.0, accuracy=0.0)


def _lost_losses(run: Run, clock: Clock) -> None:
    net = model()
    for number in range(10):
        with run.round(number, model=net) as rnd:
            for name, loss in zip("abcd", (math.nan, math.inf, -math.inf, 1.0), strict=True):
                with rnd.client(name, samples=3) as client:
                    client.step(loss)
                    client.submit(_moved(net, 0.1), loss=loss)
            rnd.evaluated(loss=math.nan if number % 2 else math.inf)


def _strangers(run: Run, clock: Clock) -> None:
    net = model()
    for number in (0, 3, 4, 9):  # rounds are missing, and nobody comes twice
        with run.round(number, model=net) as rnd:
            for place in range(4):
                with rnd.client(f"{number}-{place}", samples=7) as client:
                    client.submit(_moved(net, 0.1), loss=1.0)
                rnd.evaluated(client=f"{number}-{place}", accuracy=0.5)


def _cut_off(run: Run, clock: Clock) -> None:
    net = model()
    for _ in range(2):
        rnd = run.round(0, model=net).__enter__()
        with rnd.client("a") as client:
            client.submit(_moved(net, 0.1))


@pytest.mark.parametrize(
    "loop",
    [_nothing, _one_client, _one_round, _all_equal, _lost_losses, _strangers, _cut_off],
    ids=lambda one: one.__name__,
)
def test_no_rule_breaks(tmp_path: Path, loop: Loop) -> None:
    """Whatever is missing, nobody is accused of what cannot be told."""
    diagnosis = diagnosed(looped(tmp_path, loop), "FL4", "FL501", "FL502", "FL503", "FL504")
    assert not [one for one in diagnosis.findings if one.clients and one.code != "FL405"]


@pytest.mark.parametrize("sketches", [True, False])
def test_a_frozen_layer_shows_in_a_loop_of_ones_own(tmp_path: Path, sketches: bool) -> None:
    """No gradients, no losses, no samples: zeros in an update are enough, with or without sketches."""

    def loop(run: Run, clock: Clock) -> None:
        torch.manual_seed(0)
        net = model()
        for number in range(4):
            with run.round(number, model=net) as rnd:
                for name in "abcde":
                    with rnd.client(name) as client:
                        state = _moved(net, 0.1)
                        if name == "c" and number >= 1:
                            state["2.weight"] = net.state_dict()["2.weight"].clone()
                        client.submit(state)

    findings = found(looped(tmp_path, loop, sketches=sketches), "FL409")
    assert [(one.clients, one.layers, one.rounds) for one in findings] == [(("c",), ("2.weight",), (1, 2, 3))]


def test_rates_show_without_gradients(tmp_path: Path) -> None:
    """A client that moves a thousandth of what the others move, at like losses that do not fall, is named."""

    def loop(run: Run, clock: Clock) -> None:
        torch.manual_seed(0)
        net = model()
        for number in range(8):
            with run.round(number, model=net) as rnd:
                for place in range(6):
                    slow = place == 4 and number >= 3
                    with rnd.client(place, samples=20) as client:
                        for step in range(3):
                            client.step(2.0 if slow else 2.0 - 0.4 * step)
                        client.submit(_moved(copy.deepcopy(net), 1e-4 if slow else 0.1))

    findings = found(looped(tmp_path, loop), "FL413")
    assert [(one.clients, one.rounds) for one in findings] == [(("4",), (3, 4, 5, 6, 7))]
    assert findings[0].evidence["by_gradient"] is False


@pytest.mark.parametrize(("early", "codes"), [(1e-5, ["FL413"]), (0.1, [])], ids=["always small", "small only later"])
def test_updates_that_only_became_small_are_no_low_rate(tmp_path: Path, early: float, codes: list[str]) -> None:
    """Of a run that does not get anywhere, updates next to nothing are the cause only if they were so from the first
    round on: else something else made them so."""

    def loop(run: Run, clock: Clock) -> None:
        torch.manual_seed(0)
        net = model()
        for number in range(16):
            with run.round(number, model=net) as rnd:
                for place in range(5):
                    with rnd.client(place, samples=20) as client:
                        client.step(2.0)
                        client.submit(_moved(net, early if number < 5 else 1e-5), loss=2.0)
                rnd.evaluated(loss=2.0)

    findings = found(looped(tmp_path, loop), "FL413")
    assert [one.code for one in findings] == codes
    assert not any(one.clients for one in findings)


@pytest.mark.parametrize("rule", [*LEARNING, *FAIRNESS], ids=lambda one: one.code)
def test_every_page_is_whole(rule: object) -> None:
    """A title and all sections, in their order."""
    assert list(sections(rule)) == ["", *SECTIONS]  # type: ignore[arg-type]  # a rule, whatever its kind
