"""Telemetry beyond its level.

Sees: records that the run's level does not allow. At `sealed` (only sums are seen): norms, cosines, layer statistics,
sketches or gradients of single clients' updates. At `summary` (clients send statistics): whole updates kept on the
server. With `sketches = false`: sketches.

Matters: the level is a promise to the clients. What is in the record can be read by whoever gets the run's folder;
sketches tell how alike two clients' data are, and whole updates can be turned back into rows.

Evidence: which kinds of records, of how many participations and clients.

False alarms: none; the records are there. A run whose level was changed on the way shows here with what it kept before.

Do: delete the run or the part of it (`fedvitals gc`), and set the level where the clients are told of it.

Papers: Geiping et al., Inverting Gradients (NeurIPS 2020).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.rule import WrittenRule
from fedvitals.diagnose.writing import times, write
from fedvitals.store.table import Bools
from fedvitals.vocabulary import Finding, Level, Severity

MOST_NAMED = 20


def _look(chart: Chart) -> Iterator[Finding]:
    settings = chart.run.environment.get("settings")
    settings = settings if isinstance(settings, Mapping) else {}
    seen = _of_updates(chart) if chart.level is Level.SEALED else {}
    sketches = _sketched(chart)
    if settings.get("sketches") is False and sketches.any() and chart.level is not Level.SEALED:
        seen["sketches, which are switched off"] = sketches
    for what, rows in seen.items():
        if rows.any():
            yield _finding(chart, what, rows)
    if chart.level is not Level.OPEN and settings.get("keep_updates") is True:
        yield write(
            RULE,
            Severity.WARNING,
            f"keep_updates is on at level {chart.level}: whole updates of clients may be kept with the run",
            evidence={"setting": "keep_updates", "level": str(chart.level)},
            next=["set keep_updates = false, and delete what was kept: fedvitals gc"],
        )


def _of_updates(chart: Chart) -> dict[str, Bools]:
    """What tells of single updates, and of which participations."""
    table, updates, gradients = chart.participations, chart.updates, chart.gradients
    found: dict[str, Bools] = {
        "norms of updates": np.isfinite(table.update_norm),
        "cosines of updates": np.isfinite(table.cosine),
        "sketches of updates": _sketched(chart),
    }
    if updates is not None:
        found["statistics of updates a layer"] = updates.present
    if gradients is not None and len(gradients.row):
        rows = np.zeros(len(table), bool)
        rows[gradients.row[gradients.row >= 0]] = True
        found["gradients"] = rows
    return found


def _sketched(chart: Chart) -> Bools:
    updates = chart.updates
    if updates is None or updates.sketches is None:
        return np.zeros(len(chart.participations), bool)
    return np.asarray(np.isfinite(updates.sketches).any(axis=1), dtype=np.bool_)


def _finding(chart: Chart, what: str, rows: Bools) -> Finding:
    table = chart.participations
    names = chart.names(np.unique(table.client[rows]))
    return write(
        RULE,
        Severity.WARNING,
        f"the record has {what}, of {times(int(rows.sum()), 'participation')} and {times(len(names), 'client')}, at "
        f"level {chart.level}",
        rounds=np.unique(table.round[rows]).tolist(),
        clients=names[:MOST_NAMED],
        evidence={"what": what, "participations": int(rows.sum()), "clients": len(names), "level": str(chart.level)},
        next=["delete what should not be there: fedvitals gc", "set the level where clients are told of it"],
    )


RULE = WrittenRule(code="FL702", name="telemetry beyond its level", page=__doc__ or "", look=_look)
