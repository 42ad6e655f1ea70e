"""How the scorer is taught: lessons that repeat, trees that say what scikit-learn's say, thresholds with a rate."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedvitals.bench.scorer.calibration import calibrated, easing, exceeded_by, highest_clock, pair_thresholds
from fedvitals.bench.scorer.curriculum import THIRD_MIX, lesson
from fedvitals.bench.scorer.fitting import Fitted, as_trees, separating
from fedvitals.bench.scorer.kinds import ALARMS, EXACT, KINDS, WATCHED
from fedvitals.bench.scorer.lessons import Learnt, learnt
from fedvitals.diagnose.evidence.course import CONTEXT, FEATURES
from fedvitals.diagnose.evidence.forest import Scorers, load, save
from fedvitals.diagnose.evidence.limits import ACCUSE, SUSPECT
from fedvitals.diagnose.evidence.suspicion import CLOCKS
from fedvitals.train.job import Job


def test_trees_say_what_scikit_learn_says() -> None:
    """Also for missing values, and for values that lie on a threshold."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    random = np.random.default_rng(0)
    rows = random.standard_normal((900, 7)).round(1).astype(np.float32)
    rows[random.random(rows.shape) < 0.1] = np.nan
    labels = np.nan_to_num(rows[:, 0]) + np.nan_to_num(rows[:, 3]) > 0.3
    models = [
        HistGradientBoostingClassifier(max_iter=15, max_leaf_nodes=leaves, random_state=0).fit(rows, labels)
        for leaves in (3, 16)
    ]
    expected = np.stack([model.decision_function(rows) for model in models], axis=1)
    columns = np.arange(2, 16, 2)
    wider = np.full((900, 20), np.nan, np.float32)
    wider[:, columns] = rows
    np.testing.assert_allclose(
        as_trees([Fitted(model, columns) for model in models]).scores(wider), expected, atol=1e-5
    )


def test_features_are_chosen_by_what_they_tell_of_any_kind() -> None:
    """Of two kinds that show in different features, both are kept; in which direction does not matter."""
    random = np.random.default_rng(0)
    honest, one, other = (random.standard_normal((2000, 6)).astype(np.float32) for _ in range(3))
    one[:, 1] += 2
    other[:, 4] -= 2
    found = separating(honest, [one, other, honest[:0]])
    assert set(np.argsort(-found)[:2].tolist()) == {1, 4}
    assert 0.4 < found[[1, 4]].min() <= found.max() <= 0.5
    assert found[[0, 2, 3, 5]].max() < 0.05


def test_scorers_come_back_from_their_file(tmp_path: Path) -> None:
    """Bit for bit, without pickle; the shipped file is of the features that there are now."""
    shipped = load()
    assert shipped.features == FEATURES
    save(tmp_path / "copy.npz", shipped, {"lessons": 1})
    again = load(tmp_path / "copy.npz")
    rows = np.random.default_rng(0).standard_normal((20, len(FEATURES)))
    assert np.array_equal(again.alarming.scores(rows), shipped.alarming.scores(rows))
    assert np.array_equal(again.naming.scores(rows), shipped.naming.scores(rows))
    assert isinstance(again, Scorers)
    assert np.array_equal(again.thresholds.levels, shipped.thresholds.levels)


def test_a_lesson_is_a_function_of_its_number(tmp_path: Path) -> None:
    """The same number is the same training, a job that can be run; odd numbers are refused."""
    assert lesson(12, tmp_path, tmp_path) == lesson(12, tmp_path, tmp_path)
    with pytest.raises(ValueError, match="odd"):
        lesson(13, tmp_path, tmp_path)


def test_lessons_never_touch_reserved_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over hundreds of numbers of two mixes every job is valid, and every kind comes up."""
    monkeypatch.setattr("fedvitals.bench.scorer.curriculum._subset", lambda name, *_: f"{name}.npz")
    drawn = [lesson(number, tmp_path, tmp_path) for number in (*range(0, 1600, 4), *range(100_000, 100_400, 2))]
    sources = {one.job["data"]["source"] for one in drawn}
    assert sources == {"digits", "synthetic", "mnist.npz", "shakespeare.npz"}
    assert {one.kind for one in drawn} == {*KINDS, "clean"}
    for one in drawn:
        assert Job.from_dict(one.job).train.rounds >= 16


def test_small_lessons_draw_rows_that_the_bench_never_measures(tmp_path: Path) -> None:
    """The third mix takes even draws of the data sets that are open to development, each of its own number."""
    drawn = [lesson(number, tmp_path, tmp_path) for number in range(THIRD_MIX, THIRD_MIX + 400, 2)]
    problems = {one.job["data"]["source"].rpartition(":")[2] for one in drawn}
    assert {name.partition("_")[0] for name in problems} == {"digits", "mnist", "shakespeare"}
    assert all(name == "digits" or int(name.partition("_")[2]) % 2 == 0 for name in problems)
    for one in drawn:
        assert Job.from_dict(one.job).seed == one.number


def test_a_lesson_is_played_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it showed is kept; the guilty rows are the struck clients' from the fault's round on."""
    monkeypatch.setattr("fedvitals.bench.scorer.curriculum._subset", lambda name, *_: f"{name}.npz")
    number = next(
        number
        for number in range(0, 400, 4)
        if (one := lesson(number, tmp_path, tmp_path)).family == "digits"
        and one.job["data"]["clients"] <= 14
        and one.kind not in EXACT | {"clean"}
    )
    first = learnt(lesson(number, tmp_path, tmp_path), tmp_path / "kept")
    again = learnt(lesson(number, tmp_path, tmp_path), tmp_path / "kept")
    assert first is not None
    assert again is not None
    assert first.guilty.any()
    assert not first.guilty.all()
    np.testing.assert_array_equal(first.features, again.features)


def test_thresholds_keep_their_rate() -> None:
    """On runs like those they were taken from, about the asked share of each pair rings; other pairs never do."""
    random, watched = np.random.default_rng(0), np.array([[True, True], [True, False]])
    found = pair_thresholds(random.gumbel(size=(2000, 2, 2)), watched, 0.02)
    assert (np.isfinite(found) == watched).all()
    fresh = random.gumbel(size=(4000, 2, 2))
    for alarm, clock in np.argwhere(watched):
        assert 0.01 < (fresh[:, alarm, clock] >= found[alarm, clock]).mean() < 0.04
    assert exceeded_by(fresh[:, 0, 0], 0.001) > exceeded_by(fresh[:, 0, 0], 0.01)


def test_what_makes_sound_runs_stand_higher_is_taken_off() -> None:
    """Of a context that does, all of it; of others nothing to speak of, and of those that bad clients move, nothing."""
    random = np.random.default_rng(0)
    contexts = random.standard_normal((3000, len(CONTEXT)))
    high = 2 * contexts[:, CONTEXT.index("cohort")] + 5 * contexts[:, CONTEXT.index("wild")] + random.gumbel(size=3000)
    found = easing(contexts, high)
    assert abs(found[CONTEXT.index("cohort")] - 2) < 0.6
    assert found[CONTEXT.index("wild")] == 0
    assert abs(found[CONTEXT.index("classes")]) < 0.6


def test_all_clocks_together_keep_the_rates_of_a_run() -> None:
    """However many pairs watch, and in large cohorts, which stand higher by chance, as in small ones."""
    random = np.random.default_rng(0)
    large = random.random(4000) < 0.5
    lessons, clocks = [], []
    for higher in large:
        features = np.zeros((3, len(FEATURES)), np.float16)
        features[:, FEATURES.index("context.cohort")] = 4.0 * higher
        clients = np.arange(3, dtype=np.int32)
        lessons.append(Learnt(0, "blobs", "clean", features, clients, np.zeros_like(clients), np.zeros(3, bool)))
        clocks.append(random.gumbel(size=(3, len(ALARMS), len(CLOCKS))) + 3.0 * higher)
    found = calibrated(lessons[:2000], clocks[:2000], accuse=0.01, suspect=0.05)
    high = np.array([highest_clock(one, seen, found).max() for one, seen in zip(lessons, clocks, strict=True)])[2000:]
    assert 0.004 < (high >= ACCUSE).mean() < 0.025
    for some in (large[2000:], ~large[2000:]):
        assert 0.02 < (high[some] >= SUSPECT).mean() < 0.1


def test_every_alarm_is_watched_by_clocks_that_there_are() -> None:
    """Whatever is taught is also looked at."""
    assert set(WATCHED) == set(ALARMS)
    assert all(clocks and clocks <= set(CLOCKS) for clocks in WATCHED.values())
