"""Lessons -> one small scorer a kind of fault, each against everybody honest (gradient boosting by scikit-learn)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedvitals.bench.scorer.kinds import EXACT, SCORED
from fedvitals.bench.scorer.lessons import Learnt
from fedvitals.diagnose.evidence.course import FEATURES
from fedvitals.diagnose.evidence.forest import MOST_LEAVES, Trees
from fedvitals.diagnose.evidence.measures import NAMES

KINDS = tuple(sorted(set(SCORED.values())))
ITERATIONS = 70
LEAVES = 12
LOUD_SHARE = 0.05  # of a run's honest rows, the loudest: those that a scorer must learn to bear
OTHER_SHARE = 0.04  # and some of the rest
GUILTY_WEIGHT = 0.15  # of all guilty rows of a kind, beside 1 for all honest ones
CLEAN_WEIGHT = 2.0  # of a run without a fault beside the honest ones of a run with one
SCORE_COLUMNS = 5 * len(NAMES)  # the ways that are scores come first

Single = NDArray[np.float32]


def fitted(lessons: Sequence[Learnt]) -> Trees:
    """The trees of all kinds, in the order of KINDS."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    honest, honest_weights = _honest(lessons)
    models = []
    for kind in KINDS:
        guilty, weights = _guilty(lessons, kind)
        rows = np.concatenate([honest, guilty])
        labels = np.r_[np.zeros(len(honest)), np.ones(len(guilty))]
        both = np.r_[honest_weights / honest_weights.sum(), GUILTY_WEIGHT * weights / weights.sum()] * len(labels)
        model = HistGradientBoostingClassifier(
            max_iter=ITERATIONS,
            learning_rate=0.15,
            max_leaf_nodes=LEAVES,
            min_samples_leaf=15,
            l2_regularization=0.5,
            max_features=0.3,
            early_stopping=False,
            random_state=0,
        )
        models.append(model.fit(rows, labels, sample_weight=both))
    return as_trees(models)


def _guilty(lessons: Sequence[Learnt], kind: str) -> tuple[Single, NDArray[np.float64]]:
    parts = [one.features[one.guilty] for one in lessons if one.scorer == kind and one.guilty.any()]
    if not parts:
        return np.empty((0, len(FEATURES)), np.float32), np.empty(0)
    weights = np.concatenate([np.full(len(part), len(part) ** -0.5) for part in parts])
    return np.concatenate(parts), weights


def _honest(lessons: Sequence[Learnt]) -> tuple[Single, NDArray[np.float64]]:
    random = np.random.default_rng(0)
    rows, weights = [], []
    for one in lessons:
        if one.kind in EXACT:
            continue
        some = _telling(one, random)
        rows.append(one.features[some])
        weights.append(np.full(len(some), (CLEAN_WEIGHT if one.clean else 1.0) / max(len(some), 1) ** 0.5))
    return np.concatenate(rows), np.concatenate(weights)


def _telling(one: Learnt, random: np.random.Generator) -> NDArray[np.int64]:
    loudness = np.nan_to_num(np.abs(one.features[:, :SCORE_COLUMNS])).max(axis=1)
    honest = np.flatnonzero(~one.guilty)
    loudest = honest[np.argsort(-loudness[honest])[: max(8, int(LOUD_SHARE * len(honest)))]]
    return np.union1d(loudest, honest[random.random(len(honest)) < OTHER_SHARE])


def as_trees(models: Sequence[Any]) -> Trees:
    """scikit-learn's trees as tests and leaves (of its release 1.5 and up: `_predictors` is its own)."""
    tests: list[tuple[int, int, float, bool, int]] = []
    leaves: list[Single] = []
    scorer: list[int] = []
    for number, model in enumerate(models):
        for (predictor,) in model._predictors:
            nodes = predictor.nodes
            order = _leaf_order(nodes, 0)
            values = np.zeros(MOST_LEAVES, np.float32)
            values[: len(order)] = nodes["value"][order]
            tests += [(len(leaves), *test) for test in _tests(nodes, order)]
            leaves.append(values)
            scorer.append(number)
    columns = list(zip(*tests, strict=True))
    return Trees(
        tree=np.array(columns[0], np.int32),
        feature=np.array(columns[1], np.int32),
        threshold=np.array(columns[2], np.float32),
        missing_left=np.array(columns[3], bool),
        keep=np.array(columns[4], np.uint32),
        leaves=np.array(leaves),
        scorer=np.array(scorer, np.int32),
        base=np.array([float(np.ravel(model._baseline_prediction)[0]) for model in models], np.float32),
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
        found.append(
            (int(node["feature_idx"]), float(threshold), bool(node["missing_go_to_left"]), 0xFFFFFFFF & ~struck)
        )
    return found
