"""The participations of each client that can be measured, one after the other: where a change from one to the next may
lie, with what it takes before and after it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.evidence.course import course
from fedvitals.store.table import Floats, Ints

BEFORE, AFTER = 3, 2  # participations that are held against each other


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """[clients, participations]: rows of the measured participations of each client in order, then -1."""

    rows: Ints

    def of(self, values: Floats) -> Floats:
        found: Floats = np.where(self.rows >= 0, values[np.maximum(self.rows, 0)], np.nan)
        return found

    def __iter__(self) -> Iterator[tuple[int, Ints]]:
        """Places in the order of which a break may lie, with the clients that have enough before and after it."""
        for place in range(BEFORE, self.rows.shape[1] - AFTER + 1):
            there = np.flatnonzero(self.rows[:, place + AFTER - 1] >= 0)
            if len(there):
                yield place, there


def participated(chart: Chart) -> Steps:
    measured = np.zeros(len(chart.participations), bool)
    measured[chart.shared(course).measured] = True
    own = [rows[measured[rows]] for rows in chart.histories]
    table = np.full((len(own), max((len(rows) for rows in own), default=0)), -1, np.int64)
    for client, rows in enumerate(own):
        table[client, : len(rows)] = rows
    return Steps(table)
