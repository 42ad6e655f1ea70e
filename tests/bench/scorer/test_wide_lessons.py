"""Lessons of many worlds: none twice, none of data that is kept for the final table, and families left out whole."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fedvitals.bench.scorer import leaving_out
from fedvitals.bench.scorer.curriculum import WIDE_MIX, lesson
from fedvitals.bench.scorer.fitting import telling_columns
from fedvitals.bench.scorer.kinds import ALARMS, KINDS
from fedvitals.bench.scorer.lessons import Learnt, all_learnt
from fedvitals.bench.scorer.worlds import FAMILIES, MADE_UP, world_rows
from fedvitals.diagnose.evidence.course import FEATURES
from fedvitals.train.job import Job
from fedvitals.train.sections import DataSpec

TABLES = ("cancer", "wine", "iris")


def test_wide_lessons_are_jobs_of_every_family_and_kind(tmp_path: Path) -> None:
    """About half are sound; each names the world of its own number, and no data set that the bench keeps."""
    drawn = [lesson(number, tmp_path, tmp_path) for number in range(WIDE_MIX, WIDE_MIX + 1600, 2)]
    assert {one.family for one in drawn} == set(FAMILIES)
    assert {one.kind for one in drawn} == {*KINDS, "clean"}
    assert 0.4 < sum(one.kind == "clean" for one in drawn) / len(drawn) < 0.6
    for one in drawn:
        assert one.job["data"]["source"] == f"fedvitals.bench.scorer.worlds:{one.family}_{one.number}"
        assert Job.from_dict(one.job).seed == one.number
    assert drawn[7] == lesson(drawn[7].number, tmp_path, tmp_path)


@pytest.mark.parametrize("family", [*MADE_UP, *TABLES])
@pytest.mark.parametrize("partition", ["iid", "natural"])
def test_a_world_is_a_function_of_its_number(family: str, partition: str) -> None:
    """Enough rows for all, the same for the same number and others for another; natural clients have some each."""
    data = DataSpec(source="synthetic", partition=partition, clients=12, rows=20, min_rows=5)
    one, again, other = (world_rows(family, number, data) for number in (4, 4, 6))
    assert len(one["x_train"]) == len(one["y_train"]) == 240
    assert len(np.unique(one["y_train"])) >= 2
    for key, array in one.items():
        np.testing.assert_array_equal(array, again[key])
    assert one["x_train"].shape != other["x_train"].shape or not np.array_equal(one["x_train"], other["x_train"])
    if partition == "natural":
        assert min(Counter(one["client"].tolist()).values()) >= 5
        assert set(one["client"].tolist()) == set(range(12))


def _learnt(number: int, family: str) -> Learnt:
    none = np.zeros(4, np.int32)
    return Learnt(number, family, "clean", np.zeros((4, len(FEATURES)), np.float32), none, none, none.astype(bool))


def test_a_data_set_is_left_out_whole() -> None:
    """Whatever model is trained on it; every part has its families, and the large ones are not all in one."""
    families = ["digits"] * 9 + ["digits_cnn"] * 3 + ["mnist_mlp"] * 6 + ["mnist_cnn"] * 2 + ["waves"] * 5 + ["iris"]
    place = leaving_out.folds([_learnt(number, family) for number, family in enumerate(families)])
    parts = {family: {own for own, name in zip(place, families, strict=True) if name == family} for family in families}
    assert all(len(own) == 1 for own in parts.values())
    assert parts["digits"] == parts["digits_cnn"]
    assert parts["mnist_mlp"] == parts["mnist_cnn"]
    assert len(parts["digits"] | parts["mnist_mlp"] | parts["waves"]) == leaving_out.FOLDS


def test_every_lesson_is_scored_by_who_never_saw_its_family(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is fitted for a part has none of the part's families in it."""
    seen: list[set[str]] = []

    class Silent:
        def scores(self, features: np.ndarray) -> np.ndarray:
            return np.zeros((len(features), len(ALARMS)))

    def fitted(lessons: list[Learnt]) -> Silent:
        seen.append({one.family for one in lessons})
        return Silent()

    monkeypatch.setattr(leaving_out, "alarms", fitted)
    lessons = [_learnt(number, family) for number, family in enumerate(["waves", "grids", "wine", "waves"])]
    clocks = leaving_out.watched_unseen(lessons)
    assert seen == [{"grids", "wine"}, {"waves", "wine"}, {"waves", "grids"}]
    assert [len(one) for one in clocks] == [4, 4, 4, 4]


def test_what_says_how_much_a_client_has_is_always_asked() -> None:
    """Alone it tells nothing of guilt; the scorer must know it to weigh the rest."""
    random = np.random.default_rng(0)
    honest, guilty = (random.standard_normal((500, len(FEATURES))).astype(np.float32) for _ in range(2))
    chosen = {FEATURES[place] for place in telling_columns(honest, [guilty])}
    assert {name for name in FEATURES if name.startswith("context.")} <= chosen


def test_some_natural_clients_are_far_more_unlike_the_rest_than_others() -> None:
    """A person whose hand or instrument is another must be borne: in some worlds one is moved several times as far as
    the middle one, and single classes are done in a way of the client's own."""
    data = DataSpec(source="synthetic", partition="natural", clients=20, rows=40, min_rows=5)
    furthest = [_furthest_beside_middle(world_rows("blobs", number, data)) for number in range(0, 60, 2)]
    assert max(furthest) > 2.5
    assert sum(one < 1.8 for one in furthest) > 5


def _furthest_beside_middle(rows: dict[str, np.ndarray]) -> float:
    x = rows["x_train"] / rows["x_train"].std(axis=0)
    means = np.array([x[rows["client"] == client].mean(axis=0) for client in np.unique(rows["client"])])
    far = np.linalg.norm(means - np.median(means, axis=0), axis=1)
    return float(far.max() / np.median(far))


def test_lessons_are_played_by_several_processes_as_by_one(tmp_path: Path) -> None:
    """The same rows, in the order that was asked for."""
    numbers = [
        number
        for number in range(WIDE_MIX, WIDE_MIX + 200, 2)
        if (one := lesson(number, tmp_path, tmp_path)).family in ("blobs", "grids") and one.job["data"]["clients"] <= 14
    ][:3]
    lessons = [lesson(number, tmp_path, tmp_path) for number in numbers]
    alone = list(all_learnt(lessons, tmp_path / "alone", workers=1))
    together = list(all_learnt(lessons, tmp_path / "together", workers=2))
    assert [one.number for one in together if one is not None] == numbers
    for left, right in zip(alone, together, strict=True):
        assert left is not None
        assert right is not None
        np.testing.assert_array_equal(left.features, right.features)
