"""Clients' losses beside the evaluation's: runs that go on from a trained model, clients that train by another loss,
evaluations on rows that are wrong, servers that overshoot."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from charted import Clock, alarms, found, looped, model

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.learning.curves import beginning, evaluated, learning_curve
from fedvitals.run import Run

LEARNING = ("FL402", "FL403", "FL404", "FL406", "FL412")
RNG = np.random.default_rng(3)
STILL = 0.2 + 0.004 * RNG.normal(size=14)
FALLING = np.linspace(2.2, 1.7, 14)


def _loop(
    folder: Path,
    judged: Iterable[float],
    own: Callable[[int], Sequence[float]],
    right: float = 0.9,
    factor: float = 0.0,
) -> Chart:
    """Five clients with these losses inside each participation, an evaluation a round, and a server that moves the
    model by this many times an update."""

    def loop(run: Run, clock: Clock) -> None:
        net = model(outputs=10)
        for number, loss in enumerate(judged):
            with run.round(number, model=net) as rnd:
                for place in range(5):
                    with rnd.client(place, samples=20) as client:
                        for one in own(number):
                            client.step(one)
                        client.submit(
                            {name: one + 0.01 * torch.randn(one.shape) for name, one in net.state_dict().items()}
                        )
                net.load_state_dict(
                    {name: one + factor * 0.01 * torch.randn(one.shape) for name, one in net.state_dict().items()}
                )
                rnd.evaluated(loss=float(loss), accuracy=right)

    return looped(folder, loop)


def test_a_healthy_warm_start_raises_no_alarm(tmp_path: Path) -> None:
    """Its clients know their rows by heart already: their small loss is no beginning of the evaluation's, and neither
    leaps of it nor a loss that stands where it is low are a fault."""
    chart = _loop(tmp_path, STILL, lambda number: (0.045, 0.05, 0.08 if number % 3 == 0 else 0.04, 0.045))
    assert alarms(chart, *LEARNING) == []
    assert learning_curve(chart, 4).values.tolist() == pytest.approx(STILL.tolist())


def test_a_warm_start_that_is_ruined_is_told(tmp_path: Path) -> None:
    """From a small loss back to guessing: it diverges, however well it began."""
    chart = _loop(tmp_path, np.linspace(0.2, 2.4, 14), lambda number: (0.05 + 0.15 * number, 0.1 + 0.3 * number))
    assert {"FL402", "FL412"} & {code for code, _ in alarms(chart, *LEARNING)}


def test_clients_that_train_by_another_loss(tmp_path: Path) -> None:
    """Theirs is not put in front of the evaluation's: what falls is not told to rise."""
    chart = _loop(tmp_path, FALLING, lambda number: (0.12 - 0.002 * number,) * 3)
    assert alarms(chart, *LEARNING) == []
    (slow,) = found(chart, "FL406")
    assert "from 2.2 to 1.7" in slow.why


def test_the_first_loss_on_receipt_is_the_beginning_where_both_measure_alike(tmp_path: Path) -> None:
    """Then the curve begins before the first round."""
    chart = _loop(tmp_path, FALLING, lambda number: (2.3 - 0.04 * number,) * 3)
    curve = learning_curve(chart, 4)
    assert (curve.rounds[0], curve.values[0]) == (-1, pytest.approx(2.3))


@pytest.mark.parametrize(
    ("loss", "right", "expected"),
    [(0.2, 0.95, np.log(10)), (3.0, 0.1, 3.0), (0.09, 0.1, 0.09)],
    ids=["trained before", "worse than guessing", "no cross-entropy"],
)
def test_what_progress_is_measured_by(tmp_path: Path, loss: float, right: float, expected: float) -> None:
    """The first loss, or that of guessing if it is larger; a squared error is not compared with guessing."""
    chart = _loop(tmp_path, [loss] * 4, lambda number: (loss,) * 2, right)
    assert beginning(chart, evaluated(chart)) == pytest.approx(expected)


@pytest.mark.parametrize("judged", [np.linspace(2.4, 6, 14), np.full(14, 2.4)], ids=["rises", "stands"])
def test_an_evaluation_on_rows_that_are_wrong(tmp_path: Path, judged: Iterable[float]) -> None:
    """Never better than guessing while the clients learn: it says what may be wrong with the rows, and no single round
    whose losses leap makes it the learning rate's fault."""

    def own(number: int) -> tuple[float, ...]:
        loss = 2.3 * math.exp(-number / 5)
        return (loss, loss, 2.5 * loss if number == 5 else loss, loss)

    chart = _loop(tmp_path, judged, own, right=0.1)
    (one,) = found(chart, "FL402", "FL411", "FL412")
    assert (one.code, one.severity) == ("FL411", "warning")
    assert "never below 2.4 (guessing has 2.303)" in one.why
    assert "labelled or scaled" in one.why


@pytest.mark.parametrize(("factor", "blamed"), [(0.5, True), (9.0, False)])
def test_a_server_that_overshoots_is_no_rate_of_the_clients(tmp_path: Path, factor: float, blamed: bool) -> None:
    """Their losses leap after it has thrown the model; where it has not, the rate is too high."""

    def own(number: int) -> tuple[float, ...]:
        loss = 2.0 + 3 * number
        return (loss, loss, (1 + number) * loss, (1 + number) * loss)

    chart = _loop(tmp_path, np.arange(14) * 3.0 + 5, own, 0.1, factor)
    assert bool(found(chart, "FL412")) is blamed
    assert found(chart, "FL402")
