"""Lessons -> a scorer an alarm, against everybody honest, and one a kind, against the others (gradient boosting)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedvitals.bench.scorer.kinds import ALARMS, EXACT, SCORED
from fedvitals.bench.scorer.lessons import Learnt
from fedvitals.bench.scorer.worlds import MADE_UP
from fedvitals.diagnose.evidence.course import FEATURES
from fedvitals.diagnose.evidence.forest import MOST_LEAVES, Trees
from fedvitals.diagnose.evidence.measures import NAMES

KINDS = tuple(sorted(set(SCORED.values())))
ALARM_ITERATIONS = 180
NAME_ITERATIONS = 120
LOUD_SHARE = 0.05  # of a run's honest rows, the loudest: those that a scorer must learn to bear
OTHER_SHARE = 0.4  # and some of the rest
HONEST_ROWS = 300_000  # drawn of all of them
GUILTY_ROWS = 20_000  # of each kind
NAMED_USUAL = 4.0  # names are for what is usual: wild worlds blur what tells one kind from another
NAMED_ROWS = 8_000  # the same for names, of which there are many more to fit
CLEAN_WEIGHT = 2.0  # of a run without a fault beside the honest ones of a run with one
SCORE_COLUMNS = 4 * len(NAMES)  # the ways that are scores come first
MOST_FEATURES = 160  # of a scorer: the rest tells it nothing, and costs as much to fit
SCREENED_ROWS = 3_000  # by which features are chosen

Single = NDArray[np.float32]


class Fitted(NamedTuple):
    """scikit-learn's model, and which features its columns are."""

    model: Any
    columns: NDArray[np.int64]


def alarms(lessons: Sequence[Learnt]) -> Trees:
    """Each alarm's kinds against everybody honest, in the order of ALARMS."""
    honest = _honest(lessons)
    return as_trees(
        [
            _fitted(honest, [_guilty(lessons, kind) for kind in sorted(taught)], ALARM_ITERATIONS, 16)
            for taught in ALARMS.values()
        ]
    )


def names(lessons: Sequence[Learnt]) -> Trees:
    """Each kind against all the others, in the order of KINDS."""
    guilty = [_guilty(lessons, kind, NAMED_ROWS, NAMED_USUAL) for kind in KINDS]
    return as_trees(
        [
            _fitted(np.concatenate([*guilty[:place], *guilty[place + 1 :]]), [one], NAME_ITERATIONS, 8)
            for place, one in enumerate(guilty)
        ]
    )


def _fitted(against: Single, taught: Sequence[Single], iterations: int, leaves: int) -> Fitted:
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(
        max_iter=iterations,
        learning_rate=0.1,
        max_leaf_nodes=leaves,
        min_samples_leaf=20,
        l2_regularization=1.0,
        max_features=0.3,
        early_stopping=False,
        random_state=0,
    )
    columns = telling_columns(against, taught)
    rows = np.concatenate([against[:, columns], *(some[:, columns] for some in taught)])
    return Fitted(model.fit(rows, np.arange(len(rows)) >= len(against)), columns)


def telling_columns(against: Single, taught: Sequence[Single]) -> NDArray[np.int64]:
    """The features that tell most, and all that says how much a client and its cohort have: alone that tells nothing,
    but it says how much the rest is worth."""
    worth = separating(against, taught)
    worth[[place for place, name in enumerate(FEATURES) if name.startswith("context.")]] = np.inf
    return np.sort(np.argsort(-worth, kind="stable")[:MOST_FEATURES])


def separating(against: Single, taught: Sequence[Single]) -> NDArray[np.float64]:
    """Of each feature how well it alone tells the kind that it tells best: how far the chance that a guilty row has
    more of it than another is from a half (Mann and Whitney 1947)."""
    best = np.zeros(against.shape[1])
    for some in taught:
        if len(some):
            rows = np.nan_to_num(np.concatenate([against[:SCREENED_ROWS], some[:SCREENED_ROWS]]))
            ranks = rows.argsort(axis=0, kind="stable").argsort(axis=0, kind="stable")
            guilty = len(rows) - min(len(against), SCREENED_ROWS)
            chance = (ranks[-guilty:].mean(axis=0) - (guilty - 1) / 2) / (len(rows) - guilty)
            best = np.maximum(best, np.abs(chance - 0.5))
    return best


def _guilty(lessons: Sequence[Learnt], kind: str, count: int = GUILTY_ROWS, usual: float = 1.0) -> Single:
    """`usual`: how often rows of the data sets are drawn for one of the made-up worlds."""
    some = [one for one in lessons if one.scorer == kind and one.guilty.any()]
    if not some:
        return np.empty((0, len(FEATURES)), np.float32)
    weights = [1.0 if one.family in MADE_UP else usual for one in some]
    return _drawn([one.features[one.guilty] for one in some], weights, count)


def _honest(lessons: Sequence[Learnt]) -> Single:
    random = np.random.default_rng(0)
    judged = [one for one in lessons if one.kind not in EXACT]
    parts = [one.features[_telling(one, random)] for one in judged]
    return _drawn(parts, [CLEAN_WEIGHT if one.clean else 1.0 for one in judged], HONEST_ROWS)


def _drawn(parts: Sequence[NDArray[np.float16]], weights: Sequence[float], count: int) -> Single:
    """So many rows, drawn so that a run of many rows does not drown the others. Drawing stands in for weights: with
    weights scikit-learn takes nine tenths of its time for the borders of its bins."""
    chances = np.concatenate(
        [np.full(len(part), weight * max(len(part), 1) ** -0.5) for part, weight in zip(parts, weights, strict=True)]
    )
    chosen = np.random.default_rng(1).choice(len(chances), count, p=chances / chances.sum())
    found: Single = np.concatenate(parts)[chosen].astype(np.float32)
    return found


def _telling(one: Learnt, random: np.random.Generator) -> NDArray[np.int64]:
    loudness = np.nan_to_num(np.abs(one.features[:, :SCORE_COLUMNS])).max(axis=1)
    honest = np.flatnonzero(~one.guilty)
    loudest = honest[np.argsort(-loudness[honest])[: max(8, int(LOUD_SHARE * len(honest)))]]
    return np.union1d(loudest, honest[random.random(len(honest)) < OTHER_SHARE])


def as_trees(models: Sequence[Fitted]) -> Trees:
    """scikit-learn's trees as tests and leaves (of its release 1.5 and up: `_predictors` is its own)."""
    tests: list[tuple[int, int, float, bool, int]] = []
    leaves: list[Single] = []
    scorer: list[int] = []
    for number, (model, used) in enumerate(models):
        for (predictor,) in model._predictors:
            nodes = predictor.nodes
            order = _leaf_order(nodes, 0)
            values = np.zeros(MOST_LEAVES, np.float32)
            values[: len(order)] = nodes["value"][order]
            tests += [
                (len(leaves), int(used[column]), limit, missing, keep)
                for column, limit, missing, keep in _tests(nodes, order)
            ]
            leaves.append(values)
            scorer.append(number)
    columns = list(zip(*tests, strict=True))
    return Trees(
        tree=np.array(columns[0], np.int32),
        feature=np.array(columns[1], np.int32),
        threshold=np.array(columns[2], np.float32),
        missing_left=np.array(columns[3], bool),
        keep=np.array(columns[4], np.uint16),
        leaves=np.array(leaves),
        scorer=np.array(scorer, np.int32),
        base=np.array([float(np.ravel(model._baseline_prediction)[0]) for model, _ in models], np.float32),
    )


def _leaf_order(nodes: Any, node: int) -> list[int]:
    """The leaves from left to right."""
    if nodes[node]["is_leaf"]:
        return [node]
    return _leaf_order(nodes, int(nodes[node]["left"])) + _leaf_order(nodes, int(nodes[node]["right"]))


def _tests(nodes: Any, order: list[int]) -> list[tuple[int, float, bool, int]]:
    """Of each inner node: feature, threshold, where missing values go, and which leaves stay when a row fails it."""
    found = []
    for number, node in enumerate(nodes):
        if node["is_leaf"]:
            continue
        struck = sum(1 << order.index(leaf) for leaf in _leaf_order(nodes, int(nodes[number]["left"])))
        threshold = np.float32(node["num_threshold"])
        if threshold > node["num_threshold"]:  # features are single precision: the test must not let more pass
            threshold = np.nextafter(threshold, np.float32(-np.inf))
        found.append((int(node["feature_idx"]), float(threshold), bool(node["missing_go_to_left"]), 0xFFFF & ~struck))
    return found
