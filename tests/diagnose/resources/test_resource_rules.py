"""FL801, FL802, FL803: memory that grows or runs out, and more threads than cores."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from charted import Clock, diagnosed, found, looped, trained
from numpy.typing import NDArray

from fedvitals.diagnose.chart import Chart
from fedvitals.run import Run
from fedvitals.vocabulary import Severity, Span

MB = 1e6


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Chart:
    return trained(tmp_path_factory.mktemp("runs"), {"train.clients_per_round": 20, "train.rounds": 24})


def with_peaks(chart: Chart, peaks: NDArray[np.floating], executor: str = "sequential") -> Chart:
    """The same run, had its memory gone like that."""
    names = np.full(len(peaks), executor)
    return replace(
        chart,
        participations=replace(chart.participations, peak_memory_bytes=peaks.astype(np.float64), executor=names),
        _shared={},
    )


def test_memory_that_settles_is_no_leak(chart: Chart) -> None:
    """Libraries load and allocators keep: it grows by a fifth at first, and then hardly."""
    rows = np.arange(len(chart.participations))
    assert found(with_peaks(chart, 300 * MB + 60 * MB * (1 - np.exp(-rows / 40))), "FL801") == ()


def test_a_run_that_grows_without_an_end(chart: Chart) -> None:
    """Everybody adds a little: bytes a round, and how long the machine's memory lasts."""
    rows = np.arange(len(chart.participations))
    (one,) = found(with_peaks(chart, 300 * MB + 0.5 * MB * rows), "FL801")
    assert one.clients == ()
    assert one.evidence["bytes_a_round"] == pytest.approx(10 * MB, rel=0.1)
    assert "last for" in one.why


def test_one_client_that_leaks(chart: Chart) -> None:
    """In a process that all share."""
    mine = np.array(chart.clients)[chart.participations.client] == "7"
    (one,) = found(with_peaks(chart, 300 * MB + 5 * MB * np.cumsum(mine)), "FL801")
    assert one.clients == ("7",)
    assert one.evidence["bytes_a_participation"] == pytest.approx(5 * MB, rel=0.05)


def with_heap(chart: Chart, used: NDArray[np.floating]) -> Chart:
    """The same run, had so much memory been in use after its rounds."""
    own = with_peaks(chart, np.full(len(chart.participations), 300 * MB))
    spans = [
        Span(number, None, "fl.heap", 0, 0, attributes=json.dumps({"round": number, "heap_bytes": int(size)}))
        for number, size in enumerate(used.tolist())
    ]
    return replace(own, spans=tuple(spans))


def test_who_comes_first_is_not_accused_of_what_the_server_kept(chart: Chart) -> None:
    """The peak rises when the first client of a round trains, whoever leaked before."""
    more = np.zeros(len(chart.participations))
    for _, rows in chart.cohorts:
        more[rows[0]] = 5 * MB
    first = {chart.clients[chart.participations.client[rows[0]]] for _, rows in chart.cohorts}
    told = found(with_peaks(chart, 300 * MB + np.cumsum(more)), "FL801")
    assert not {name for one in told for name in one.clients} & first


def test_memory_in_use_that_grows_after_every_round(chart: Chart) -> None:
    """Ten rounds of 1 MB are enough, with some noise; clients are not accused."""
    noise = np.random.default_rng(0).uniform(0, 0.3 * MB, 10)
    (one,) = found(with_heap(chart, 120 * MB + MB * np.arange(10) + noise), "FL801")
    assert one.clients == ()
    assert one.evidence["bytes_a_round"] == pytest.approx(MB, rel=0.1)


@pytest.mark.parametrize("course", ["flat", "noisy", "steps", "settles", "falls", "few", "slow"])
def test_memory_in_use_that_does_not_grow_without_an_end(chart: Chart, course: str) -> None:
    """Noise, one step, a cache that fills, and growth too small or too short to tell."""
    rounds, drawn = np.arange(24), np.random.default_rng(1)
    used = {
        "flat": np.zeros(24),
        "noisy": drawn.uniform(0, 12 * MB, 24),
        "steps": np.where(rounds > 12, 20 * MB, 0.0),
        "settles": 30 * MB * (1 - np.exp(-rounds / 4)),
        "falls": -MB * rounds,
        "few": 5 * MB * rounds[:6],
        "slow": 0.1 * MB * rounds,
    }[course]
    assert found(with_heap(chart, 120 * MB + used), "FL801") == ()


def test_made_up_numbers_of_memory_break_nothing(chart: Chart) -> None:
    """What is no number of a round is left out."""
    texts = ("{", "[]", '{"round": "x", "heap_bytes": 1}', '{"round": 1, "heap_bytes": true}', '{"round": 1}', None)
    spans = tuple(Span(place, None, "fl.heap", 0, 0, attributes=text) for place, text in enumerate(texts))
    assert found(replace(with_heap(chart, np.zeros(0)), spans=spans), "FL801") == ()


def test_a_client_with_a_process_of_its_own(chart: Chart) -> None:
    """Its own history tells; the others' peaks, which differ, tell nothing."""
    table = chart.participations
    base = 200 * MB + 7 * MB * table.client
    mine = np.array(chart.clients)[table.client] == "5"
    (one,) = found(with_peaks(chart, base + np.where(mine, 4 * MB * table.attempt, 0.0), "remote"), "FL801")
    assert one.clients == ("5",)
    assert one.evidence["bytes_a_participation"] == pytest.approx(4 * MB, rel=0.05)


def test_near_the_machines_memory(chart: Chart) -> None:
    """Nine tenths of it is near; what it has is in the record."""
    most = float(chart.run.environment["memory_bytes"])
    (one,) = found(with_peaks(chart, np.full(len(chart.participations), 0.95 * most)), "FL802")
    assert one.severity is Severity.WARNING
    assert found(with_peaks(chart, np.full(len(chart.participations), 0.5 * most)), "FL802") == ()


def test_memory_that_ran_out(tmp_path: Path) -> None:
    """The exception says so: it is critical, with the client, and the exception itself is folded under it."""

    def loop(run: Run, clock: Clock) -> None:
        with run.round(0) as rnd, rnd.client("big"):
            raise MemoryError("cannot allocate 40 GB")

    with pytest.raises(MemoryError):
        looped(tmp_path, loop)
    from charted import last

    from fedvitals.settings import Settings

    (one,) = found(last(Settings(dir=str(tmp_path))), "FL802", "FL101")
    assert (one.code, one.severity, one.clients) == ("FL802", Severity.CRITICAL, ("big",))
    assert [symptom.code for symptom in one.symptoms] == ["FL101"]


def test_more_workers_than_cores(chart: Chart) -> None:
    """Eight workers on two cores; and two on two are in order."""
    for workers, alarms in ((8, 1), (2, 0)):
        environment = {**chart.run.environment, "executor": "processes", "cpus_usable": 2, "engine_threads": 1}
        run = replace(chart.run, environment=environment, config={"execute": {"workers": workers}})
        assert len(found(replace(chart, run=run), "FL803")) == alarms


def test_a_record_without_memory_cannot_be_judged(chart: Chart) -> None:
    """It says so."""
    nothing = with_peaks(chart, np.full(len(chart.participations), np.nan))
    bare = replace(nothing, run=replace(nothing.run, environment={}), resources=(), spans=())
    assert set(diagnosed(bare, "FL8").not_observable) == {"FL801", "FL802", "FL803"}
