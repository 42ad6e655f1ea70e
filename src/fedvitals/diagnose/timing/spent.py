"""Where each participation's time went, and what its computing should have taken: what the rules about time share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.persistence import LEAST_MARKS, Streak
from fedvitals.diagnose.robust import Numbers, median, spread, threshold
from fedvitals.diagnose.writing import times
from fedvitals.store.table import Bools, Floats, Ints
from fedvitals.vocabulary import CLIENT_PHASES, Outcome

LOAD, TRAIN, WAIT = (CLIENT_PHASES.index(name) for name in ("load", "train", "wait"))
TRANSFERS = [CLIENT_PHASES.index("download"), CLIENT_PHASES.index("upload")]
FINISHED = (Outcome.USED.value, Outcome.LATE.value, Outcome.REJECTED.value)
TWICE = 2.0  # as long as the others: they idle for half of it
NATURE_RATE = 0.01  # of false alarms a run
LEAST_COHORT = 3  # below that the median of a round is one of the two
REWEIGHTINGS = 5
FAR_OFF = math.log(2.0)  # more than that says no more of a choice: there are slow ones
MOST_FITTED = 2_000  # participations, evenly taken: three numbers need no more
LEAST_RECKONED = 2  # marks of a client, where times are reckoned and carry no noise


@dataclass(frozen=True, slots=True, eq=False)
class Spent:
    """Seconds a participation, NaN for those that did not finish."""

    finished: Bools
    total: Floats
    load: Floats
    transfer: Floats
    wait: Floats
    compute: Floats  # the rest: training, and where that was not timed what no phase explains
    longest: Bools  # it took the longest of its round
    waited_for: Bools  # the longest of those that came in time: the round ended with it; nobody who is stale


def spent(chart: Chart) -> Spent:
    """Times of batched clients are their shares of the batch's; all others are measured from start to end."""
    table = chart.participations
    finished = np.isin(table.outcome, FINISHED) & ~_unfinished(chart)
    phases = np.nan_to_num(table.phases_s)
    explained = phases.sum(axis=1)
    total = np.where(table.attributed, explained, np.maximum(table.end_s - table.start_s, explained))
    total = np.where(finished & (total > 0), total, np.nan)
    load, wait, transfer = phases[:, LOAD], phases[:, WAIT], phases[:, TRANSFERS].sum(axis=1)
    rest = np.where(np.isfinite(table.phases_s[:, TRAIN]), explained, total) - load - wait - transfer
    alone = np.nan_to_num(total) - wait
    return Spent(
        finished=finished & np.isfinite(total),
        total=total,
        load=load,
        transfer=transfer,
        wait=wait,
        compute=np.where(finished, np.maximum(rest, 0.0), np.nan),
        longest=_longest(chart, alone),
        waited_for=_longest(chart, np.where(table.outcome == Outcome.LATE.value, 0.0, alone)) & ~_stale(chart),
    )


def slowness(chart: Chart) -> Floats:
    """The logarithm of each participation's computing time over what its steps and rows should take: 0 is as fast as
    the others, log 2 half as fast. Clients of one batch share its noise, so they are held against the batch's median;
    who is timed alone is not, because the median of a few noisy times is itself noise."""
    table, times = chart.participations, chart.shared(spent)
    seen = times.finished & (times.compute > 0)
    found = np.full(len(table), np.nan)
    if not seen.any():
        return found
    took = (times.compute / _paces(chart))[seen]
    found[seen] = np.log(took / expected(took, _work(chart, seen)))
    return np.where(table.attributed, found - _batch_medians(chart, found), found)


def _paces(chart: Chart) -> Floats:
    """How many times as long as usual a step took in the batch of each participation; 1 for who was in none. A batch
    that was interrupted took longer for all in it, and would hide what steps and rows take."""
    table, times = chart.participations, chart.shared(spent)
    with np.errstate(invalid="ignore", divide="ignore"):
        a_step = times.compute / table.steps
    a_step[~(np.isfinite(a_step) & (a_step > 0))] = np.nan
    paces = np.full(len(table), np.nan)
    for some in _batches(chart):
        known = a_step[some][np.isfinite(a_step[some])]
        if len(known) >= LEAST_COHORT:
            paces[some] = np.median(known)
    usual = median(paces)
    return np.where(np.isfinite(paces), paces / usual, 1.0) if usual > 0 else np.ones(len(table))


def expected(took: Floats, work: Floats) -> Floats:
    """The time that the columns of `work` explain: the nonnegative weights with the least relative error, found over
    all choices of columns (there are three) by reweighted least squares, so that slow ones do not set the measure. How
    far off a choice is counts for everybody, up to a bound: the few who have twice the steps of all others must not
    pass for slow."""
    some = slice(None, None, -(-len(took) // MOST_FITTED))
    best, error = np.full(len(took), float(np.median(took))), np.inf
    for count in range(1, work.shape[1] + 1):
        for chosen in map(list, combinations(range(work.shape[1]), count)):
            weights = _weights(took[some], work[some, chosen])
            if weights is None:
                continue
            fitted: Floats = (work[:, chosen] @ weights).astype(np.float64)
            if np.any(fitted <= 0):
                continue
            off = float(np.minimum(np.abs(np.log(took[some] / fitted[some])), FAR_OFF).mean())
            if off < error * 0.98:  # a further column must earn its place
                best, error = fitted, off
    return best


def _weights(took: Floats, work: Floats) -> Numbers | None:
    """None where some would be negative, or give a time that is."""
    trust = 1 / took
    for _ in range(REWEIGHTINGS):
        weights: Numbers = np.linalg.lstsq(work * trust[:, None], took * trust, rcond=None)[0]
        fitted = work @ weights
        if np.any(weights < 0) or np.any(fitted <= 0):
            return None
        trust = 1 / np.sqrt(np.maximum(np.abs(took - fitted), 1e-3 * fitted) * fitted)
    return weights


def _work(chart: Chart, rows: Bools) -> Floats:
    """A constant, steps, and rows gone through; what is not known of all is left out."""
    table = chart.participations
    through = table.samples * np.where(np.isfinite(table.epochs), table.epochs, 1.0)
    columns = [np.ones(int(rows.sum())), table.steps[rows], through[rows]]
    known = [one for one in columns[1:] if np.all(np.isfinite(one)) and np.ptp(one) > 0]
    return np.stack([columns[0], *known], axis=1)


def _batch_medians(chart: Chart, values: Floats) -> Floats:
    """For each row of a batch the median of the batch; where that is small, of the round."""
    medians = round_medians(chart, values)
    for some in _batches(chart):
        known = values[some][np.isfinite(values[some])]
        if len(known) >= LEAST_COHORT:
            medians[some] = np.median(known)
    return medians


def in_company(chart: Chart) -> Bools:
    """Who was trained as one batch with enough others to be told from its noise. One or two that are a batch of their
    own, for they have more steps than the rest, are as noisy as who is timed alone."""
    found = np.zeros(len(chart.participations), bool)
    for some in _batches(chart):
        found[some] = chart.shared(spent).finished[some].sum() >= LEAST_COHORT
    return found


def _batches(chart: Chart) -> list[Ints]:
    """The rows of each."""
    table = chart.participations
    rows = np.flatnonzero(table.attributed)
    keys = np.stack([table.chunk[rows], table.round[rows]])
    order = np.lexsort(keys)
    ends = np.flatnonzero((np.diff(keys[:, order], axis=1) != 0).any(axis=0)) + 1
    return np.split(rows[order], ends) if len(rows) else []


def round_medians(chart: Chart, values: Floats) -> Floats:
    """For each row the median of its round; 0 where too few are known."""
    medians = np.zeros(len(values))
    for _, rows in chart.cohorts:
        known = values[rows][np.isfinite(values[rows])]
        if len(known) >= LEAST_COHORT:
            medians[rows] = np.median(known)
    return medians


def _stale(chart: Chart) -> Bools:
    """Who was at work while the model moved on: that waits for nobody."""
    return np.nan_to_num(chart.participations.staleness) > 0


def _unfinished(chart: Chart) -> Bools:
    """Who was at work when a training without rounds ended: how long it would have taken is not known."""
    table = chart.participations
    untimed = np.isnan(table.phases_s).all(axis=1)
    found: Bools = (table.outcome == Outcome.LATE.value) & np.isfinite(table.staleness) & untimed
    return found


def _longest(chart: Chart, took: Floats) -> Bools:
    found = np.zeros(len(took), bool)
    for _, rows in chart.cohorts:
        if len(rows) > 1 and took[rows].max() > 0:
            found[rows[int(np.argmax(took[rows]))]] = True
    return found


def beyond_nature(chart: Chart, logs: Floats) -> float:
    """Which median over its participations a client does not reach by the spread of them all: the logarithm of a
    factor, and at least of TWICE. Devices and links are of many kinds, and one kind is no fault."""
    medians = np.array([median(logs[rows]) for rows in chart.histories])
    medians = medians[np.isfinite(medians)]
    far = median(medians) + threshold(len(medians), NATURE_RATE) * spread(medians)
    return max(math.log(TWICE), far)


def others(chart: Chart, streak: Streak, values: Floats) -> tuple[float, float]:
    """Between which values nine tenths of the others lie, in the rounds of these participations."""
    table = chart.participations
    same: Bools = np.isin(table.round, table.round[streak.seen]) & (table.client != streak.client)
    seen = values[same & np.isfinite(values)]
    if not len(seen):
        seen = values[(table.client != streak.client) & np.isfinite(values)]
    return (float(np.quantile(seen, 0.05)), float(np.quantile(seen, 0.95))) if len(seen) else (np.nan, np.nan)


def least_marks(chart: Chart) -> int:
    """How often something must be so: a virtual clock has no bad moments, and those of a batch are everybody's."""
    virtual = chart.run.environment.get("clock") == "virtual"
    return LEAST_RECKONED if virtual or chart.participations.attributed.any() else LEAST_MARKS


class Held(NamedTuple):
    """What rounds had of a slow client."""

    up: int  # rounds that waited for it longest
    late: int  # rounds that ended without it
    behind: float = 0.0  # versions of the model that went by in the meantime, in the median

    @property
    def words(self) -> str:
        if self.behind > 0:
            return f"nobody waited for it; the model was {self.behind:g} versions further when its updates came"
        if self.late and not self.up:
            return f"{times(self.late, 'round')} ended without it"
        return f"it held up {times(self.up, 'round')}" + (f", and {self.late:,} ended without it" if self.late else "")


def held(chart: Chart, rows: Ints) -> Held:
    """In how many of these participations the round waited for it, and in how many it no longer did."""
    late = chart.participations.outcome[rows] == Outcome.LATE.value
    behind = float(np.median(np.nan_to_num(chart.participations.staleness[rows])))
    return Held(int(chart.shared(spent).waited_for[rows].sum()), int(late.sum()), behind)
