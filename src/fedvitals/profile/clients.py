"""Clients: how fast each is, what it does with its time, how often it came back, and how often it was waited for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedvitals.profile.path import Path
from fedvitals.profile.timeline import NOBODY, Timeline
from fedvitals.store.table import Bools, Floats, Ints, ParticipationTable
from fedvitals.vocabulary import CLIENT_PHASES, Outcome

_LOAD, _TRAIN = CLIENT_PHASES.index("load"), CLIENT_PHASES.index("train")
FINISHED = (Outcome.USED, Outcome.LATE, Outcome.REJECTED)


@dataclass(frozen=True, slots=True)
class ClientProfile:
    """One client over the whole run. Times of a client that was trained in a batch are its share."""

    client: str
    participations: int
    failed: int  # or never came back
    late: int
    busy_s: float
    phases_s: Mapping[str, float]
    path_s: float  # on the critical path
    held_rounds: int  # in which it worked longest while no other did
    held_s: float  # how long that was, over the run
    samples_per_s: float | None  # gone through in training, over the time that training took
    step_s: float | None
    epoch_s: float | None
    load_ratio: float | None  # of its loading and training; None where loading was not timed
    slowness: float | None  # its time over the median of its rounds; the median over the run


def client_profiles(timeline: Timeline, path: Path, alone: Floats) -> tuple[ClientProfile, ...]:
    """In the order in which they first came."""
    table, count = timeline.participations, len(timeline.clients)
    total = _Totals(table, count)
    outcome = table.outcome
    phases = np.stack([total.of(np.nan_to_num(column)) for column in table.phases_s.T], axis=1)
    busy = total.of(busy_s(table))
    failed = total.of(np.isin(outcome, (Outcome.FAILED, Outcome.DROPPED)))
    late = total.of(outcome == Outcome.LATE)
    path_s = _path_s(timeline, path)
    held, held_s = _held(timeline, alone)
    trained = np.isin(outcome, FINISHED) & (np.nan_to_num(table.phases_s[:, _TRAIN]) > 0)
    slow = _slowness(table, count)
    loads = total.of(~np.isnan(table.phases_s[:, _LOAD])) > 0
    rates = [_rate(table, total, trained, column) for column in (_through(table), table.steps, table.epochs)]
    found = []
    for place, name in enumerate(timeline.clients):
        loading = phases[place, _LOAD] + phases[place, _TRAIN]
        found.append(
            ClientProfile(
                client=name,
                participations=int(total.rows[place]),
                failed=int(failed[place]),
                late=int(late[place]),
                busy_s=float(busy[place]),
                phases_s={p: float(s) for p, s in zip(CLIENT_PHASES, phases[place], strict=True) if s > 0},
                path_s=float(path_s[place]),
                held_rounds=int(held[place]),
                held_s=float(held_s[place]),
                samples_per_s=_known(rates[0][place]),
                step_s=_known(1 / rates[1][place]) if rates[1][place] > 0 else None,
                epoch_s=_known(1 / rates[2][place]) if rates[2][place] > 0 else None,
                load_ratio=float(phases[place, _LOAD] / loading) if loads[place] and loading > 0 else None,
                slowness=_known(slow[place]),
            )
        )
    return tuple(found)


def sums(places: Ints, values: Floats | Bools, count: int) -> Floats:
    """For each place the sum of its values."""
    return np.bincount(places, weights=values, minlength=count).astype(np.float64)


class _Totals:
    """Sums a client."""

    def __init__(self, table: ParticipationTable, count: int) -> None:
        self._client, self._count = table.client, count
        self.rows = np.bincount(table.client, minlength=count)

    def of(self, values: Floats | Bools) -> Floats:
        return sums(self._client, values, self._count)


def busy_s(table: ParticipationTable) -> Floats:
    """How long each participation took: from start to end, or its share where it was one of a batch."""
    shares = np.nan_to_num(table.phases_s).sum(axis=1)
    measured = np.maximum(table.end_ns - table.start_ns, 0) / 1e9
    found: Floats = np.where(table.attributed, shares, measured)
    return found


def _through(table: ParticipationTable) -> Floats:
    """Rows gone through."""
    return table.samples * np.where(np.isnan(table.epochs), 1.0, table.epochs)


def _rate(table: ParticipationTable, total: _Totals, trained: Bools, amount: Floats) -> Floats:
    """Amounts a second of training, of the participations of which both are known; NaN for none."""
    known = trained & np.isfinite(amount)
    seconds = total.of(np.where(known, np.nan_to_num(table.phases_s[:, _TRAIN]), 0.0))
    amounts = total.of(np.where(known, amount, 0.0))
    found: Floats = np.divide(amounts, seconds, out=np.full(len(seconds), np.nan), where=seconds > 0)
    return found


def _path_s(timeline: Timeline, path: Path) -> Floats:
    working = np.flatnonzero(path.work >= 0)
    whose = timeline.works.client[path.work[working]]
    lasted = (path.end_ns[working] - path.start_ns[working]) / 1e9
    own = whose != NOBODY
    return sums(whose[own], lasted[own], len(timeline.clients))


def _held(timeline: Timeline, alone: Floats) -> tuple[Ints, Floats]:
    """For each client in how many rounds it worked longest while no other did, and for how long."""
    works = timeline.works
    own = np.flatnonzero((works.client != NOBODY) & (alone > 0))
    order = own[np.lexsort((alone[own], works.round[own]))]
    last = np.append(np.diff(works.round[order]) != 0, True) if len(order) else np.zeros(0, bool)
    holders = order[last]
    count = len(timeline.clients)
    whose = works.client[holders]
    return np.bincount(whose, minlength=count).astype(np.int64), sums(whose, alone[holders], count)


def _slowness(table: ParticipationTable, count: int) -> Floats:
    """Of clients whose rounds had others; NaN for the rest."""
    done = np.flatnonzero(np.isin(table.outcome, FINISHED))
    took, rounds = busy_s(table)[done], table.round[done]
    ratio = np.full(len(done), np.nan)
    for rows in np.split(np.arange(len(done)), np.flatnonzero(np.diff(rounds)) + 1):
        middle = float(np.median(took[rows])) if len(rows) > 1 else 0.0
        if middle > 0:
            ratio[rows] = took[rows] / middle
    found = np.full(count, np.nan)
    order = np.argsort(table.client[done], kind="stable")
    whose = table.client[done][order]
    for rows in np.split(order, np.flatnonzero(np.diff(whose)) + 1):
        seen = ratio[rows][np.isfinite(ratio[rows])]
        if len(seen):
            found[table.client[done][rows[0]]] = np.median(seen)
    return found


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
