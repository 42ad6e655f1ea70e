"""Runs side by side: what differs, and what is noise."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedvitals.profile.comparison.compare import Comparison, Difference, compare
from fedvitals.profile.comparison.noise import ratio_of_rounds, ratio_of_seeds
from fedvitals.profile.comparison.summary import Summary, summary_of
from fedvitals.profile.pareto import Trial, front
from fedvitals.profile.profile import profile_of
from fedvitals.settings import Settings
from fedvitals.store import open_store
from fedvitals.train.engine import train
from fedvitals.train.job import Job


def _summary(folder: Path, **changes: object) -> Summary:
    settings = Settings(dir=str(folder))
    job = Job.from_dict({"data": {"source": "digits"}, "train": {"rounds": 10}, "execute": {"clock": "virtual"}})
    result = train(job.replaced(changes), settings=settings)
    with closing(open_store(settings).open(str(result.run_id))) as reader:
        return summary_of(profile_of(reader), reader, ())


def _of(comparison: Comparison, measure: str) -> Difference:
    return next(one for one in comparison.others[0].differences if one.measure == measure)


def test_the_same_job_twice_differs_in_nothing(tmp_path: Path) -> None:
    """On the virtual clock not even in time."""
    runs = [_summary(tmp_path), _summary(tmp_path)]
    found = compare(runs)
    assert [one.runs for one in found.others] == [(runs[1],)]
    assert found.others[0].config == ()
    assert not any(one.real for one in found.others[0].differences)
    assert found.regressions(0.0) == []


def test_a_slower_job_is_worse_by_its_rounds(tmp_path: Path) -> None:
    """Three times the epochs take longer on the virtual clock, send as much, and the setting is named."""
    first = _summary(tmp_path, **{"train.epochs": 1})
    found = compare([first, _summary(tmp_path, **{"train.epochs": 9})])
    assert found.others[0].config == (("train.epochs", 1, 9),)
    time = _of(found, "round time")
    assert (time.basis, time.real, time.worse) == ("rounds", True, True)
    assert not _of(found, "bytes up").real
    assert {one.measure for one in found.regressions(0.05)} >= {"round time", "wall time"}
    assert any("fewer than 3 seeds" in note for note in found.others[0].notes)


def test_seeds_of_one_set_up_are_one_group(tmp_path: Path) -> None:
    """Three seeds with more clients a round against three with fewer: bytes are counted, accuracy goes by seeds."""
    few = [_summary(tmp_path, seed=seed) for seed in (2, 4, 6)]
    many = [_summary(tmp_path, **{"seed": seed, "train.clients_per_round": 15}) for seed in (2, 4, 6)]
    found = compare([*few, *many])
    assert [len(found.first), len(found.others[0].runs)] == [3, 3]
    assert _of(found, "accuracy").basis == "seeds"
    sent = _of(found, "bytes up")
    assert (sent.basis, sent.real, sent.worse) == ("counted", True, True)
    assert sent.ratio == pytest.approx(3.0)


def test_different_jobs_are_said_to_be_different(tmp_path: Path) -> None:
    """Another model: what they learn cannot be compared."""
    found = compare([_summary(tmp_path), _summary(tmp_path, **{"model.kind": "logistic"})])
    assert any("different jobs (model.kind" in note for note in found.others[0].notes)


def test_a_run_that_does_not_tell_how_it_was_set_is_no_different_job(tmp_path: Path) -> None:
    """Nobody knows; so no key is said to differ. And a run beside itself is said to be the same one."""
    told = _summary(tmp_path)
    silent = replace(told, config={}, run=replace(told.run, id="another"))
    (other,) = compare([told, silent]).others
    assert other.config == ()
    assert [note for note in other.notes if "job" in note] == [
        "a run without a recorded configuration: whether it is the same job is not known"
    ]
    (itself,) = compare([told, told]).others
    assert "the same run twice: it differs from itself in nothing" in itself.notes


def test_noise_is_not_called_real() -> None:
    """Over a thousand pairs of series of the same noise, neighbours alike, at most a few in a hundred are."""
    random = np.random.default_rng(7)

    def series() -> np.ndarray:
        noise = random.normal(size=40)
        return 1.0 + 0.1 * (noise + 0.5 * np.roll(noise, 1))

    found = [ratio_of_rounds(series(), series()) for _ in range(300)]
    assert sum(one is not None and one.real for one in found) <= 12
    shifted = [ratio_of_rounds(series(), 1.2 * series()) for _ in range(100)]
    assert sum(one is not None and one.real for one in shifted) >= 95


def test_few_seeds_are_not_trusted_too_far() -> None:
    """Three seeds each of the same thing are rarely called different; two say nothing."""
    random = np.random.default_rng(3)
    found = [ratio_of_seeds(random.normal(1, 0.1, 3), random.normal(1, 0.1, 3)) for _ in range(500)]
    assert sum(one is not None and one.real for one in found) <= 25
    assert ratio_of_seeds(np.array([1.0, 2.0]), np.array([1.0, 2.0])) is None


def _trial(wall: float | None, memory: float, sent: float, accuracy: float, problem: str | None = None) -> Trial:
    return Trial((), (), wall, wall, memory, sent, accuracy, problem)


@pytest.mark.parametrize(
    ("trials", "best"),
    [
        ([_trial(1, 100, 5, 0.9), _trial(2, 99.5, 5, 0.9)], [True, False]),  # half a percent of memory is noise
        ([_trial(1, 100, 5, 0.9), _trial(2, 50, 5, 0.9)], [True, True]),
        ([_trial(1, 100, 5, 0.9), _trial(1, 100, 5, 0.91)], [False, True]),  # rows are counted
        ([_trial(1, 100, 5, 0.9), _trial(None, 1, 1, 1.0, "it crashed")], [True, False]),
        ([_trial(1, 100, 5, 0.9), _trial(None, 100, 5, 0.9)], [True, False]),  # what is not known is bad
    ],
)
def test_the_front_has_what_nothing_beats(trials: Sequence[Trial], best: Sequence[bool]) -> None:
    """In time, memory, bytes and accuracy together."""
    assert front(trials) == tuple(best)
