"""Updates that are somebody's earlier one, or another's: found by their sketches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedvitals.diagnose.chart import Chart, Updates
from fedvitals.diagnose.evidence.course import course
from fedvitals.diagnose.evidence.measures import NAMES, parts, unit
from fedvitals.diagnose.evidence.units import Numbers
from fedvitals.diagnose.learnt import all_learnt
from fedvitals.store.table import Bools, Ints

NEAR = 5e-4  # 1 - cosine of an update and its copy with noise of 3% of its norm
NORMS_APART = 0.03
CLOSER = 0.1  # a copy is nearer to its source than this share of how near honest neighbours are
LEAST_SHARE = 0.05  # of the squared norm, that a matrix is taken for at least
MOST_REPEATS = 0.5  # of a cohort: beyond that the cohort is simply alike


@dataclass(frozen=True, slots=True)
class Group:
    """Updates of one round that are the same, exactly or nearly."""

    round: int
    rows: tuple[int, ...]
    exact: bool


def repeated(chart: Chart) -> Ints:
    """For each participation the row of the first one with exactly the same sketch and norm; its own row if none."""
    updates, count = chart.updates, len(chart.participations)
    first = np.arange(count)
    if updates is None or updates.sketches is None:
        return first
    norms = updates.norms.astype(np.float64).sum(axis=1)
    rows = np.flatnonzero(updates.present & np.isfinite(norms) & (norms > 0))
    if not len(rows):
        return first
    weights = np.random.default_rng(0).standard_normal((updates.sketches.shape[1],), dtype=np.float32)
    keys = np.einsum("ij,j->i", updates.sketches[rows], weights) + norms[rows]
    order = np.lexsort((rows, keys))
    same = np.r_[False, keys[order][1:] == keys[order][:-1]]
    starts = np.maximum.accumulate(np.where(same, 0, np.arange(len(order))))
    again, source = rows[order][same], rows[order][starts][same]
    equal = (updates.sketches[again] == updates.sketches[source]).all(axis=1)
    first[again[equal]] = source[equal]
    return first


def copies(chart: Chart) -> tuple[Group, ...]:
    """Groups of equal or nearly equal updates of different clients in one round."""
    updates, found = chart.updates, chart.shared(course)
    if updates is None or updates.sketches is None:
        return ()
    nearest = np.where(chart.shared(all_learnt), np.nan, found.raw[:, NAMES.index("nearest")])
    groups = []
    for number, cohort in chart.cohorts:
        rows = cohort[updates.present[cohort] & np.isfinite(nearest[cohort])]
        close = rows[1 - nearest[rows] < NEAR] if len(rows) else rows
        if 2 <= len(close) <= MOST_REPEATS * len(rows):
            usual = float(np.median(1 - nearest[rows]))
            groups += _groups(chart, number, rows, close, min(NEAR, CLOSER * usual))
    return tuple(groups)


def _groups(chart: Chart, number: int, cohort: Ints, rows: Ints, nearer: float) -> list[Group]:
    updates = chart.updates
    if updates is None or updates.sketches is None:
        return []
    sketches = unit(updates.sketches[rows].astype(np.float64))
    norms = np.log(np.maximum(chart.participations.update_norm[rows], 1e-30))
    apart = 1 - sketches @ sketches.T
    like = (apart < nearer) & (np.abs(norms[:, None] - norms) < NORMS_APART) & _like_inside(updates, sketches)
    left = set(range(len(rows)))
    groups = []
    while left:
        one = min(left)
        members = [other for other in sorted(left) if like[one, other] or other == one]
        left -= set(members)
        if len({int(chart.participations.client[rows[member]]) for member in members}) > 1:
            exact = bool((updates.sketches[rows[members]] == updates.sketches[rows[members[0]]]).all())
            if exact or _by_themselves(updates.sketches, rows[members], cohort):
                groups.append(Group(number, tuple(int(rows[member]) for member in members), exact))
    return groups


def _by_themselves(sketches: Numbers, group: Ints, cohort: Ints) -> bool:
    """Whether copies are far nearer to each other than any of them is to anybody else: clients with the same few rows
    come in swarms, and any two neighbours in a swarm are near."""
    own, others = unit(sketches[group]), unit(sketches[np.setdiff1d(cohort, group)])
    if not len(others):
        return False
    return float((1 - own @ own.T).max()) < CLOSER * float((1 - own @ others.T).min())


def _like_inside(updates: Updates, sketches: Numbers) -> Bools:
    """Alike in the first matrix too, as copies are: small clients with one and the same class push the last layer the
    same way, and that is most of their updates. Noise is spread over all weights, so the less of the update a matrix
    is, the more of the matrix is noise."""
    first = parts(updates).first
    if first is None:
        return np.ones((len(sketches), len(sketches)), bool)
    inside = sketches[:, parts(updates).places[first]]
    share = np.maximum((inside**2).sum(axis=1), LEAST_SHARE)
    return np.asarray(1 - unit(inside) @ unit(inside).T < NEAR / np.minimum(share[:, None], share))
