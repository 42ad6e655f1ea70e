"""Is it this client, again and again, more than chance would have it?

A rule marks the participations in which something was so. By chance every client would be marked as often as the
others are; a client is named when from some participation of its own on it is marked so often that chance would do it
to any client of the run, at any such beginning, with at most the stated rate. The bound is Chernoff's on the binomial
tail, so it errs on the side of silence.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.store.table import Bools, Floats, Ints

RATE = 0.01  # of false alarms a run, over all its clients and beginnings
LEAST_MARKS = 3  # once is an event, twice may be one that lasted
KEPT_FOR_CHANCE = (
    0.75  # chance is taken from the quieter clients, so that a quarter of bad ones do not excuse themselves
)
LEAST_TO_SORT = 8  # clients


@dataclass(frozen=True, slots=True, eq=False)
class Streak:
    """One client's marked participations from a beginning on."""

    client: int
    rows: Ints  # marked, from the beginning on
    seen: Ints  # all that could have been marked, from the beginning on
    usual: float  # how often others are marked
    chance: float  # bound on the probability that this is chance, all comparisons counted


def streaks(
    chart: Chart, marked: Bools, seen: Bools, *, least: int = LEAST_MARKS, comparisons: int = 1
) -> list[Streak]:
    """Clients that are marked beyond chance, surest first. `seen` are the rows that could be judged; `least` marks are
    needed; `comparisons` counts how many such questions the rule asks."""
    client, count = chart.participations.client, len(chart.clients)
    order = np.lexsort((chart.participations.attempt, client))
    order = order[seen[order]]
    whose, hit = client[order], marked[order]
    usual = _usual(np.bincount(whose[hit], minlength=count), np.bincount(whose, minlength=count))
    ends = np.searchsorted(whose, np.arange(count), side="right")
    begins = np.flatnonzero(hit)
    before: Ints = np.cumsum(hit, dtype=np.int64) - hit
    owner = whose[begins]
    left = np.append(before, int(hit.sum()))[ends[owner]] - before[begins]
    chances = tail(left, ends[owner] - begins, usual[owner])
    chances *= count * np.bincount(owner, minlength=count)[owner] * comparisons
    found = []
    for place in _surest(owner, np.where(left >= least, chances, np.inf)).tolist():
        own = int(owner[place])
        rows = order[begins[place] : ends[own]]
        found.append(Streak(own, rows[marked[rows]], rows, float(usual[own]), float(chances[place])))
    return sorted(found, key=lambda streak: streak.chance)


def _surest(owner: Ints, chances: Floats) -> Ints:
    """For each client that is beyond chance at any beginning, the place of its surest one."""
    places = np.flatnonzero(chances <= RATE)
    places = places[np.lexsort((places, chances[places], owner[places]))]
    _, first = np.unique(owner[places], return_index=True)
    return places[first]


def _usual(hits: Ints, looks: Ints) -> Floats:
    """For each client, how often the quieter ones of the others are marked; never quite 0."""
    rates = hits / np.maximum(looks, 1)
    known = np.flatnonzero(looks)
    quiet = np.zeros(len(hits), bool)
    keep = len(known) if len(known) < LEAST_TO_SORT else int(np.ceil(KEPT_FOR_CHANCE * len(known)))
    quiet[known[np.argsort(rates[known], kind="stable")[:keep]]] = True
    own_hits, own_looks = np.where(quiet, hits, 0), np.where(quiet, looks, 0)
    usual: Floats = (own_hits.sum() - own_hits + 1) / (own_looks.sum() - own_looks + 2)
    return usual


def tail(hits: Ints | Floats, of: Ints | Floats, usual: float | Floats) -> Floats:
    """Chernoff's bound on the chance of at least so many hits, each with probability `usual`."""
    share = np.clip(np.asarray(hits, float) / np.maximum(of, 1), 0.0, 1.0)
    usual = np.clip(usual, 1e-12, 1 - 1e-12)
    with np.errstate(divide="ignore", invalid="ignore"):
        up = np.where(share > 0, share * np.log(share / usual), 0.0)
        down = np.where(share < 1, (1 - share) * np.log((1 - share) / (1 - usual)), 0.0)
    bound: Floats = np.where(share > usual, np.exp(-np.asarray(of, float) * (up + down)), 1.0)
    return bound
