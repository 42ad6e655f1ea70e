"""What a client does on a model that somebody spoilt speaks neither for it nor against it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from charted import Clock, found, looped, model

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.cohorts import lasting, spoilt
from fedvitals.run import Run

CLIENTS = "abcdefgh"
Update = Callable[[int, str], float]


def _chart(folder: Path, losses: Sequence[float], update: Update = lambda number, name: 0.1) -> Chart:
    """Eight clients that all begin each round with its loss; how far each goes is `update`'s to say."""

    def loop(run: Run, clock: Clock) -> None:
        net = model()
        for number, loss in enumerate(losses):
            with run.round(number, model=net) as rnd:
                for name in CLIENTS:
                    with rnd.client(name, samples=10) as client:
                        client.step(loss)
                        client.step(loss)
                        by = update(number, name)
                        client.submit({key: value + by for key, value in net.state_dict().items()}, loss=loss)

    torch.manual_seed(0)
    return looped(folder, loop)


def _kept(chart: Chart) -> bool:
    """Whether a client that was marked in round 2, and never again, stays so."""
    table = chart.participations
    own = table.client == chart.clients.index("b")
    marked = own & (table.round == 2)
    return bool(lasting(chart, marked, np.ones(len(table), dtype=bool)).any())


@pytest.mark.parametrize(
    ("later", "kept"),
    [
        pytest.param([1.0, 0.9, 0.8, 0.7], False, id="a model that learns on has it that it was luck"),
        pytest.param([2.3, 2.3, 2.3, 2.3], True, id="a model that fell back says nothing"),
        pytest.param([1.2, 1.19, 1.21, 1.2], True, id="nor does one that learns no more"),
        pytest.param([2.3, 2.3, 1.0, 0.9], False, id="until it is better again than it was"),
    ],
)
def test_a_model_that_learnt_nothing_since_exonerates_nobody(tmp_path: Path, later: list[float], kept: bool) -> None:
    """A mark is luck where the same client shows nothing on a better model, and only there."""
    assert _kept(_chart(tmp_path, [2.3, 1.6, 1.2, *later])) is kept


def test_a_model_is_spoilt_until_it_is_as_good_as_it_had_been(tmp_path: Path) -> None:
    """Ten times the loss of the first round, and on from there; a run that is merely worse again is not."""
    chart = _chart(tmp_path, [2.3, 2.0, 15.0, 30.0, 2.2, 2.0, 1.9])
    bad = chart.shared(spoilt)
    assert [bool(bad[rows[0]]) for _, rows in chart.cohorts] == [False, False, False, True, True, False, False]


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize(("code", "by"), [("FL405", math.nan), ("FL604", 0.0)])
def test_who_breaks_or_stands_still_on_a_spoilt_model_is_not_accused(
    tmp_path: Path, code: str, by: float, far: bool
) -> None:
    """The same update of the same client, on a model that is well and on one that was thrown far behind."""
    losses = [2.3, 2.0, 1.8, *([40.0] * 5 if far else [1.6, 1.5, 1.4, 1.3, 1.2])]
    chart = _chart(tmp_path, losses, lambda number, name: by if name == "c" and number > 2 else 0.1)
    named = {client for one in found(chart, code) for client in one.clients}
    assert named == (set() if far else {"c"})
