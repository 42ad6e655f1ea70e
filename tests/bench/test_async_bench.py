"""The asynchrony bench measures what it says: a small slice of it, without a word on who wins."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from fedvitals.bench.asynchrony import measuring
from fedvitals.bench.asynchrony.cases import (
    FEDBUFF,
    FULL,
    MEMORY_PISCES,
    OORT,
    QUICK,
    RANDOM,
    WAYS,
    WITHOUT_ROUNDS,
    job,
    write_devices,
)
from fedvitals.bench.asynchrony.racing import Race
from fedvitals.train.build import build

TINY = QUICK._replace(clients=40, at_work=10, needed=7, rounds=4, updates=40, test_rows=60)


def test_delays_are_log_normal_whatever_a_client_holds(tmp_path: Path) -> None:
    """Sigma 1.0 around a second, apart from the classes; deadlines are the percentiles that they are said to be."""
    size = QUICK._replace(clients=1000)
    logs = np.log(write_devices(tmp_path / "devices.csv", size, 3))
    assert np.std(logs) == pytest.approx(1.0, abs=0.1)
    shares = [np.mean(logs <= math.log(deadline_s)) for deadline_s in FULL.deadlines_s]
    assert shares == pytest.approx([0.1, 0.25, 0.5, 0.75, 0.9], abs=0.05)
    federation = build(job(size, 3, "none", FEDBUFF))
    classes = [float(federation.y[rows].double().mean()) for rows in federation.train_rows]
    assert np.corrcoef(classes, logs)[0, 1] == pytest.approx(0.0, abs=0.1)
    assert len({len(rows) for rows in federation.train_rows}) == 1


def test_all_ways_have_as_many_clients_at_work() -> None:
    """A round of the full size asks for a hundred, give or take one; asynchronous training keeps a hundred."""
    assert abs(job(FULL, 1, "lan", RANDOM, 1.0).asked - 100) <= 1
    assert {job(FULL, 1, "lan", way).asked for way in WITHOUT_ROUNDS} == {100}
    strict = [way for way in WITHOUT_ROUNDS if way.name.startswith("strict")]
    assert len(strict) == 5
    for way in strict:  # who is late is stopped, or there is no deadline: nobody is at work who is not waited for
        server = job(FULL, 1, "lan", way).server
        assert server.deadline_s == 0.0 or server.late == "stop"
    assert len(FULL.deadlines_s) == 5


def test_a_race_tells_when_it_was_how_good() -> None:
    """What has held three times counts; what was never reached is never."""
    race = Race((1.0, 2.0, 3.0, 4.0), (0.2, 0.6, 0.5, 0.6), 0.4)
    assert [race.reached_s(target) for target in (0.1, 0.45, 0.55)] == [3.0, 4.0, math.inf]
    assert race.final == pytest.approx(1.9 / 4)
    assert race.at([0.5, 1.0, 2.5, 9.0])[1:].tolist() == [0.2, 0.6, 0.6]
    assert math.isnan(race.at([0.5])[0])


def test_a_slice_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every way has its rows, ratios are those of the times, and the page, picture and rows are written."""
    monkeypatch.setattr(measuring, "QUICK", TINY)
    rows = measuring.run(quick=True, write=str(tmp_path))
    known = {(row.case, row.measure): row for row in rows}
    ratio = known[OORT.name, "times sooner at the target"]
    if ratio.value:
        times = [known[way.name, "time to the target"].value for way in (RANDOM, OORT)]
        assert ratio.value == pytest.approx(times[0] / times[1])
    goals = {row.case: row.goal for row in rows if row.goal is not None}
    assert goals == {OORT.name: 1.5, FEDBUFF.name: 3.0, MEMORY_PISCES.name: 3.0}
    assert {row.case for row in rows} == {way.name for way in WAYS} | {measuring.ALL}
    assert all(0 <= row.value <= 1 for row in rows if row.unit == "share")
    assert all(row.low <= row.value <= row.high for row in rows)
    written = json.loads((tmp_path / "explanation" / "async-bench.json").read_text())
    assert len(written["rows"]) == len(rows)
    assert "fedbuff, pisces" in (tmp_path / "explanation" / "async-bench.md").read_text()
    assert (tmp_path / "explanation" / "async-bench.svg").read_text().count("<polyline") == 7
