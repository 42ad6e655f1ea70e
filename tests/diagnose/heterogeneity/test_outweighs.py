"""FL508: one client has nearly all rows of the rounds in which it takes part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from charted import Clock, diagnosed, found, looped, model, trained

from fedvitals.diagnose.chart import Chart
from fedvitals.run import Run
from fedvitals.vocabulary import Grade, Severity

OTHERS = dict.fromkeys("abcde", 16)


def _loop(folder: Path, rows: Mapping[str, int], by_rows: bool = True, rounds: Sequence[str] = ()) -> Chart:
    """A server that averages by rows, or counts all alike; `rounds`: who takes part in each, where it is not all."""

    def loop(run: Run, clock: Clock) -> None:
        torch.manual_seed(0)
        net = model()
        for number, there in enumerate(rounds or ["".join(rows)] * 6):
            weights = {name: rows[name] if by_rows else 1 for name in there}
            mean = {name: torch.zeros_like(value) for name, value in net.state_dict().items()}
            with run.round(number, model=net) as rnd:
                for name in there:
                    with rnd.client(name, samples=rows[name]) as c:
                        state = {key: value + 0.1 * torch.randn(value.shape) for key, value in net.state_dict().items()}
                        c.submit(state, loss=1.0)
                    for key, value in state.items():
                        mean[key] += weights[name] / sum(weights.values()) * value
            net.load_state_dict(mean)

    return looped(folder, loop)


def test_who_makes_up_nearly_all_of_an_average_is_told(tmp_path: Path) -> None:
    """With its share, and that the model really moved so."""
    (one,) = found(_loop(tmp_path, {**OTHERS, "x": 920}), "FL508")
    assert (one.clients, one.severity, one.grade) == (("x",), Severity.WARNING, Grade.CERTAIN)
    assert one.rounds == tuple(range(6))
    assert one.evidence["share"] == 0.92
    assert one.evidence["rows_of_others"] == 80
    assert one.evidence["moved_by_rows"] == 5  # after the last round nobody saw the model
    assert "92%" in one.why


def test_a_server_that_counts_all_alike_lets_nobody_outweigh(tmp_path: Path) -> None:
    """Whatever numbers of rows were told; so do aggregators of the engine that take no weights."""
    assert found(_loop(tmp_path / "loop", {**OTHERS, "x": 920}, by_rows=False), "FL508") == ()
    chart = trained(tmp_path / "job", {"train.rounds": 3, "server.aggregator": "median"})
    assert "FL508" in diagnosed(chart, "FL508").not_observable


@pytest.mark.parametrize(
    ("rows", "rounds"),
    [
        ({**OTHERS, "x": 200}, ()),
        ({"a": 16, "x": 920}, ()),
        ({**OTHERS, "x": 160}, ("abx", "abcdex", "acdex", "bcdex", "abcdx", "abdex")),
        ({**OTHERS, "x": 920}, ("abcx", "abcd", "abcx", "bcde")),
    ],
    ids=["a large one", "one of two", "in a small round", "hardly there"],
)
def test_others_are_left_alone(tmp_path: Path, rows: Mapping[str, int], rounds: Sequence[str]) -> None:
    """A client that is merely large, two alone, and what is so in a round or two."""
    assert found(_loop(tmp_path, rows, rounds=rounds), "FL508") == ()


def test_a_healthy_job_has_none(tmp_path: Path) -> None:
    """However unequal its clients are."""
    assert found(trained(tmp_path, {"train.rounds": 6, "data.alpha": 0.1}), "FL508") == ()


@pytest.mark.parametrize("aggregator", [{"name": "fedavg"}, ["fedavg"], None, 7])
def test_a_config_of_the_users_own_breaks_nothing(tmp_path: Path, aggregator: object) -> None:
    """What stands under `server.aggregator` may be anything."""
    chart = _loop(tmp_path, {**OTHERS, "x": 920})
    config = {"server": {"aggregator": aggregator}}
    (one,) = found(replace(chart, run=replace(chart.run, config=config), _shared={}), "FL508")
    assert one.clients == ("x",)
