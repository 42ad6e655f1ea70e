"""The bottleneck: the one phase, and the client where there is one, whose time would be worth having back.

Who is slow beyond chance is said by the doctor's own rules about time, with their stated rate of false alarms; what it
costs is read off the critical path. Where no client stands out it is the phase that takes most. Training is what the
time is for, and waiting is for somebody: they are the bottleneck only where nothing else takes half as much.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.communication.upload_dominates import RULE as SLOW_LINK
from fedvitals.diagnose.rule import CannotSee, Rule
from fedvitals.diagnose.timing.loader_bound import RULE as SLOW_LOADER
from fedvitals.diagnose.timing.straggler import RULE as SLOW_COMPUTER
from fedvitals.profile.clients import sums
from fedvitals.profile.path import UNEXPLAINED, Path
from fedvitals.profile.phases import ALL
from fedvitals.profile.rounds import by_phase
from fedvitals.profile.timeline import NOBODY, Timeline
from fedvitals.store.table import Floats, Ints
from fedvitals.vocabulary import CLIENT_PHASES, Finding, Severity

PHASES_OF: dict[str, tuple[str, ...]] = {
    SLOW_COMPUTER.code: ("train",),
    SLOW_LOADER.code: ("load",),
    SLOW_LINK.code: ("upload", "download"),
}
RULES: tuple[Rule, ...] = (SLOW_COMPUTER, SLOW_LOADER, SLOW_LINK)
LEAST_RATIO = 0.02  # of the wall time: less than the recorder may cost is not worth naming anybody
TRAIN_WORTH = 0.5
USUAL = ("train", "wait", "other", UNEXPLAINED)  # what no client and no part of the server is to blame for by itself


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """What the run waited for most, that it might not have."""

    phase: str
    client: str | None
    share: float  # of the wall time, on the critical path
    seconds: float
    beyond_s: float | None  # what a client takes more than the others would; None where no client is named
    why: str


def bottleneck(timeline: Timeline, path: Path, phases: Floats) -> Bottleneck | None:
    """None where nothing took any time."""
    wall_s = float(phases.sum())
    if wall_s <= 0:
        return None
    totals = by_phase(phases)
    named = [one for one in _named(timeline, path, phases, wall_s) if one.share >= LEAST_RATIO]
    biggest = max(totals, key=lambda name: totals[name] * _worth(name))
    if named:
        worst = max(named, key=lambda one: one.beyond_s or 0.0)
        if biggest in (*USUAL, worst.phase) or (worst.beyond_s or 0.0) >= 0.5 * totals[biggest]:
            return worst
    return Bottleneck(
        biggest,
        None,
        totals[biggest] / wall_s,
        totals[biggest],
        None,
        f"{biggest} takes {totals[biggest] / wall_s:.0%} of the time, and no client stands out in it",
    )


def _worth(phase: str) -> float:
    return TRAIN_WORTH if phase in USUAL else 1.0


def _named(timeline: Timeline, path: Path, phases: Floats, wall_s: float) -> list[Bottleneck]:
    chart = chart_of_times(timeline)
    found = []
    for rule in RULES:
        try:
            findings = [one for one in rule.look(chart) if one.clients and one.severity != Severity.INFO]
        except CannotSee:
            continue
        found += [_of_client(timeline, path, phases, one, wall_s) for one in findings if len(one.clients) == 1]
    return found


def _of_client(timeline: Timeline, path: Path, phases: Floats, finding: Finding, wall_s: float) -> Bottleneck:
    """What a slow client's phase costs on the path, and how much of that the others would not have taken."""
    client = timeline.clients.index(finding.clients[0])
    by_client = {name: _on_path(timeline, path, phases, name) for name in PHASES_OF[finding.code]}
    phase = max(by_client, key=lambda name: by_client[name][client])
    seconds = float(by_client[phase][client])
    counts = np.bincount(timeline.works.client[timeline.works.client != NOBODY], minlength=len(timeline.clients))
    others = np.delete(by_client[phase] / np.maximum(counts, 1), client)
    usual = float(np.median(others)) * counts[client] if len(others) else 0.0
    return Bottleneck(phase, finding.clients[0], seconds / wall_s, seconds, max(seconds - usual, 0.0), finding.why)


def _on_path(timeline: Timeline, path: Path, phases: Floats, phase: str) -> Floats:
    """Seconds of a phase on the path, a client. Where clients are trained in batches nobody is on the path by himself:
    there each has its own share of the time."""
    count, works, table = len(timeline.clients), timeline.works, timeline.participations
    seconds = phases[:, ALL.index(phase)]
    working = np.flatnonzero(path.work >= 0)
    whose = works.client[path.work[working]]
    own = whose != NOBODY
    found = sums(whose[own], seconds[working][own], count)
    batched = float(seconds[working][~own].sum())
    told = np.nan_to_num(table.phases_s[:, CLIENT_PHASES.index(phase)]) * table.attributed
    return found + batched * sums(table.client, told, count) / max(float(told.sum()), 1e-12)


def chart_of_times(timeline: Timeline) -> Chart:
    """What the rules about time look at, and no more."""
    table = timeline.participations
    nothing: Ints = np.full(len(table), -1, dtype=np.int64)
    return Chart(timeline.run, timeline.clients, timeline.rounds, table, nothing, spans=timeline.server_spans)
