"""How the memory of the processes that train went: peaks in the order in which clients arrived."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.store.table import Bools, Floats, Ints

APART = ("remote", "flower")  # executors that give a client a process of its own


@dataclass(frozen=True, slots=True, eq=False)
class Growth:
    """Participations of processes that clients share, in the order of their arrival, and by how much each raised the
    highest peak so far. Of several workers only the one that leads is seen to grow, so a leak is never overstated."""

    rows: Ints
    more: Floats  # bytes, aligned to `rows`
    peak: Floats  # the highest so far

    @property
    def start(self) -> float:
        """Before anything was seen to grow."""
        return float(self.peak[0]) if len(self.peak) else np.nan


def shared_growth(chart: Chart) -> Growth:
    """Of the processes that several clients share."""
    table = chart.participations
    rows = np.flatnonzero(known_peaks(chart) & ~np.isin(table.executor, APART))
    peak = np.maximum.accumulate(table.peak_memory_bytes[rows])
    return Growth(rows, np.diff(peak, prepend=peak[:1]), peak)


def known_peaks(chart: Chart) -> Bools:
    """Participations whose peak is a number of bytes."""
    peaks = chart.participations.peak_memory_bytes
    known: Bools = np.isfinite(peaks) & (peaks > 0)
    return known


def by_round(chart: Chart, growth: Growth) -> tuple[Ints, Floats, Floats]:
    """The rounds in order, by how much each raised the peak, and the peak at its end."""
    numbers, place = np.unique(chart.participations.round[growth.rows], return_inverse=True)
    more: Floats = np.bincount(place, weights=growth.more, minlength=len(numbers)).astype(np.float64)
    peak = np.zeros(len(numbers))
    np.maximum.at(peak, place, growth.peak)
    return numbers, more, peak


def presence(chart: Chart, numbers: Ints, rows: Ints) -> Bools:
    """[clients, rounds]: who took part in which, or in one before it that is not among them."""
    table = chart.participations
    found = np.zeros((len(chart.clients), len(numbers)), bool)
    rows = rows[table.round[rows] <= numbers[-1]]
    found[table.client[rows], np.searchsorted(numbers, table.round[rows])] = True
    return found


def limit_bytes(chart: Chart) -> float:
    """What the machine or the container has; NaN where that is not known."""
    known = chart.run.environment.get("memory_bytes")
    return float(known) if isinstance(known, int | float) and known > 0 else np.nan
