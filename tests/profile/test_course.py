"""How a run goes over its rounds: trend, regressions, how often clients answer; and the clients' own time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from scripted import a_round, profiled, work

from fedvitals.profile.profile import Profile
from fedvitals.vocabulary import Outcome, Record


def _lasting(folder: Path, seconds: Sequence[float]) -> Profile:
    """Rounds of one client that take so long, one after the other."""
    records: list[Record] = []
    start = 0.0
    for number, lasts in enumerate(seconds):
        records += [a_round(number, start, start + lasts)._replace(selected=1)]
        records += [work("a", start, start + lasts, {"train": lasts}, round=number, attempt=number)]
        start += lasts
    return profiled(folder, records, end=start)


def test_a_trend_has_the_first_and_the_last_rounds(tmp_path: Path) -> None:
    """Medians of a quarter each; of fewer than eight rounds there is none."""
    trend = _lasting(tmp_path / "long", [9, 1, 2, 3, 3, 3, 3, 3, 3, 4, 4, 8]).course.trend
    assert trend is not None
    assert (trend.first_s, trend.last_s, trend.quarter) == (2, 4, 3)
    assert _lasting(tmp_path / "short", [1] * 7).course.trend is None


def test_rounds_that_become_longer_are_a_regression_and_even_ones_are_none(tmp_path: Path) -> None:
    """By steps or steadily, from the round on from which they do."""
    (step,) = _lasting(tmp_path / "step", [1.0, 1.1, 0.9] * 5 + [3.0, 3.1, 2.9] * 5).course.regressions
    assert step.rounds[0] == 15
    assert "until round 15" in step.why
    (rise,) = _lasting(tmp_path / "rise", [1 + number / 10 for number in range(24)]).course.regressions
    assert "rising all the time" in rise.why
    assert _lasting(tmp_path / "even", [1.0, 1.1, 0.9] * 8).course.regressions == ()


def test_answers_are_counted_with_those_who_never_gave_one(tmp_path: Path) -> None:
    """Of eight asked, five came back, one of them late; one failed, one went away, one was never heard of."""
    outcomes = [Outcome.USED] * 3 + [Outcome.REJECTED, Outcome.LATE, Outcome.FAILED, Outcome.DROPPED]
    works = [work(str(place), 0, 2, {"train": 1}, outcome=outcome) for place, outcome in enumerate(outcomes)]
    course = profiled(tmp_path, [a_round(0, 0, 2)._replace(selected=8), *works], end=2).course
    assert (course.asked, course.answered, course.late, course.failed) == (8, 5, 1, 3)
    assert (course.availability, course.failure_rate) == (5 / 8, 3 / 8)


def test_nobody_asked_has_no_rates(tmp_path: Path) -> None:
    """Rather than a rate of 0, or of all."""
    course = profiled(tmp_path, [], end=1).course
    assert (course.asked, course.availability, course.failure_rate) == (0, None, None)


def test_clients_own_time_stands_beside_the_path(tmp_path: Path) -> None:
    """Two side by side for 4 s and 2 s: the path has 4 s, the clients together 6 s."""
    records: list[Record] = [
        a_round(0, 0, 4),
        work("a", 0, 4, {"load": 1, "train": 3}),
        work("b", 0, 2, {"train": 1, "upload": 0.5}),
    ]
    profile = profiled(tmp_path, records, end=4)
    assert profile.breakdown_s == pytest.approx({"load": 1, "train": 3, "unexplained": 0})
    own = {"load": 1, "train": 4, "upload": 0.5, "unexplained": 0.5}
    assert profile.clients_breakdown_s == pytest.approx(own)


def test_bytes_of_rounds_clients_and_ways(tmp_path: Path) -> None:
    """Uncompressed and over the wire, each way, for each round and each client."""
    sent: dict[str, Any] = {"raw_bytes_up": 100, "wire_bytes_up": 25, "raw_bytes_down": 80, "wire_bytes_down": 40}
    records: list[Record] = [
        a_round(0, 0, 4),
        work("a", 0, 4, {"upload": 2, "train": 1})._replace(**sent),
        work("b", 0, 2, {"train": 1})._replace(**sent),
    ]
    profile = profiled(tmp_path, records, end=4)
    (one,) = profile.rounds
    assert (one.raw_bytes_up, one.bytes_up, one.raw_bytes_down, one.bytes_down) == (200, 50, 160, 80)
    ways = {client: (up, down) for client, up, down in profile.communication.clients}
    assert [ways[client][0].ratio for client in "ab"] == [4, 4]
    assert [ways[client][1].wire_bytes for client in "ab"] == [40, 40]
    assert [ways[client][0].bytes_per_s for client in "ab"] == [12.5, None]
