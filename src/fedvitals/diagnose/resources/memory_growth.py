"""Memory growth.

Sees: a client after whose participations the memory of the process that trains is higher again and again, when that
does not happen after the others'; a client with a process of its own whose peak rises all the time; a run that has more
memory in use after each round than after the one before; and one whose peak grows in every stretch of its rounds.

Matters: it ends with the process killed, hours later, with no error in any log.

Evidence: bytes a participation or a round, the peak at first and at last, how many rounds are left until the machine's
memory is full, and the chance of it.

False alarms: at most one run in a hundred by chance. What libraries load and allocators keep grows at first and then
no more: growth must add 3% to the process's memory for a client, 10% for a run's peak, and go on to the end. Peaks are
the kernel's count since the process began: growth below an earlier peak is not seen, and of several workers only the
leading one is. Memory in use (glibc's own count, taken when a round is over, without what the recorder holds) does not
move with what the allocator keeps: 1 MB a round shows within ten. A training that by design keeps something for every
new client grows like that too, until it has seen them all.

Do: look for what is kept from round to round: losses with their graphs (`loss` instead of `loss.item()`), lists of
batches, caches, hooks that are never removed. With a client named, look at its code first.

Papers: none.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.persistence import RATE, streaks, tail
from fedvitals.diagnose.resources.kept_memory import Kept, heap, kept
from fedvitals.diagnose.resources.process_memory import (
    APART,
    Growth,
    by_round,
    known_peaks,
    limit_bytes,
    presence,
    shared_growth,
)
from fedvitals.diagnose.robust import slope
from fedvitals.diagnose.rule import CannotSee, WrittenRule
from fedvitals.diagnose.trends import trend
from fedvitals.diagnose.writing import see_client, size, times, write
from fedvitals.store.table import Floats, Ints
from fedvitals.vocabulary import Action, Finding, Grade, Severity

STEPS = (4e6, 1e6)  # bytes: above what a heap grows by when it grows at all
LEAST_MARKS = 2  # memory that grew stays grown: there are no bad moments
MATTERS = 0.03  # of the process's memory, for one client
RUN_MATTERS = 0.10  # and for a run
WARM_UP = 0.2  # of the rounds: libraries load, allocators settle
STRETCHES = 8  # in all of which a run must grow: chance would do that once in 256
LEAST_STRETCH = 0.002  # of the memory, for each
LEAST_ROUNDS = 8  # with memory in use known, to accuse a client by it
LEAST_ALONE = 6  # participations of a client with its own process
RIVAL = 0.1  # the runner-up must be ten times less likely to be it
LOOK = (
    "look for what is kept from round to round: losses with their graphs, lists of updates, hooks",
    Action("take fewer clients a round, or restart from a checkpoint before memory is full", safe=False),
)


def _look(chart: Chart) -> Iterator[Finding]:
    growth = chart.shared(shared_growth)
    alone = np.isin(chart.participations.executor, APART) & known_peaks(chart)
    if not len(growth.rows) and not alone.any() and not len(heap(chart)[0]):
        raise CannotSee("no memory of clients was recorded")
    found = list(_of_shared(chart, growth)) if len(growth.rows) > 1 else []
    yield from found
    yield from _alone(chart, np.flatnonzero(alone))
    if found:
        return
    keeping = kept(chart)
    if keeping is not None:
        yield _of_heap(chart, keeping)
    elif len(growth.rows) > 1:
        yield from _of_run(chart, growth)


def _of_shared(chart: Chart, growth: Growth) -> Iterator[Finding]:
    table = chart.participations
    named: set[int] = set()
    numbers, used = heap(chart)
    risen = np.diff(used, prepend=used[:1])
    in_use = len(numbers) >= LEAST_ROUNDS and bool(np.any(risen > STEPS[-1]))  # else, if anything, a worker's
    batched = bool(table.attributed[growth.rows].all()) or _one_a_round(chart, growth)
    for step in STEPS:
        if in_use:  # the surest: a peak shows with whoever comes next
            who = _in_batches(chart, growth.rows, numbers, risen, step)
        elif batched:
            who = _in_batches(chart, growth.rows, *by_round(chart, growth)[:2], step)
        else:
            who = _one_by_one(chart, growth, step)
        for client, rows, amount in who:
            if client not in named and amount >= MATTERS * growth.start:
                named.add(client)
                yield _finding(chart, growth, client, rows, amount)


def _one_a_round(chart: Chart, growth: Growth) -> bool:
    """All clients of a round show one peak: they were measured together."""
    table, peaks = chart.participations, chart.participations.peak_memory_bytes
    cohorts = [rows for _, rows in chart.cohorts if len(rows) > 1]
    return bool(cohorts) and all(np.ptp(peaks[rows]) == 0 for rows in cohorts) and len(table) == len(growth.rows)


def _one_by_one(chart: Chart, growth: Growth, step: float) -> Iterator[tuple[int, Ints, float]]:
    more = np.zeros(len(chart.participations))
    more[growth.rows] = growth.more
    seen = np.zeros(len(more), bool)
    seen[growth.rows] = True
    first = np.zeros(len(more), bool)
    first[[rows[0] for _, rows in chart.cohorts if len(rows) > 1]] = True
    for streak in streaks(chart, more > step, seen, least=LEAST_MARKS, comparisons=len(STEPS)):
        if not first[streak.rows].all():  # whoever comes first shows what the server kept since the last round
            yield streak.client, streak.rows, float(more[streak.rows].sum())


def _in_batches(
    chart: Chart, known: Ints, numbers: Ints, more: Floats, step: float
) -> Iterator[tuple[int, Ints, float]]:
    """Growth is known a round: it is the client's that is there whenever it grows and not there when it does not."""
    there, grew = presence(chart, numbers, known), more > step
    hits, looks = (there & grew).sum(axis=1), there.sum(axis=1)
    without = (grew.sum() - hits + 1) / (len(numbers) - looks + 2)
    chances = np.ones(len(there))
    begins = np.zeros(len(there), dtype=np.int64)
    for client in np.flatnonzero(hits >= LEAST_MARKS).tolist():
        own = np.flatnonzero(there[client])
        marks = np.flatnonzero(grew[own])
        left: Ints = np.arange(len(marks), 0, -1)
        bounds = tail(left, len(own) - marks, float(without[client])) * len(there) * len(marks) * len(STEPS)
        bounds = np.where(left >= LEAST_MARKS, bounds, 1.0)
        chances[client], begins[client] = bounds.min(), own[marks[int(np.argmin(bounds))]]
    order = np.argsort(chances, kind="stable")
    if chances[order[0]] > RATE or (len(order) > 1 and chances[order[0]] > RIVAL * chances[order[1]]):
        return
    best = int(order[0])
    rounds = there[best] & grew & (np.arange(len(numbers)) >= begins[best])
    table = chart.participations
    seen = table.round <= numbers[-1]
    grown = np.zeros(len(table), bool)
    grown[seen] = rounds[np.searchsorted(numbers, table.round[seen])]
    rows: Ints = np.flatnonzero((table.client == best) & grown)
    yield best, rows, float(more[rounds].sum())


def _finding(chart: Chart, growth: Growth, client: int, rows: Ints, amount: float) -> Finding:
    table, name = chart.participations, chart.clients[client]
    each = amount / len(rows)
    return write(
        RULE,
        Severity.WARNING,
        f"after {times(len(rows), 'participation')} of client {name} the process's memory was {size(each)} higher each "
        f"time, {size(amount)} of {size(float(growth.peak[-1]) - growth.start)} that it grew by in all (from "
        f"{size(growth.start)} to {size(float(growth.peak[-1]))})"
        + _left(chart, growth.peak[-1], each, "participation"),
        grade=Grade.ACCUSED,
        rounds=table.round[rows].tolist(),
        clients=[name],
        evidence={
            "bytes_a_participation": each,
            "bytes": amount,
            "first_bytes": growth.start,
            "last_bytes": float(growth.peak[-1]),
        },
        next=[
            f"look at what client {name} keeps from one participation to the next",
            see_client(name),
        ],
    )


def _left(chart: Chart, now: float, each: float, what: str) -> str:
    """How long until the memory is full."""
    limit = limit_bytes(chart)
    if not np.isfinite(limit) or each <= 0:
        return ""
    return f"; the machine's {size(limit)} last for {times(int(max(limit - now, 0) / each), what)} more"


def _alone(chart: Chart, rows: Ints) -> Iterator[Finding]:
    """Clients with a process of their own."""
    table = chart.participations
    mine = np.zeros(len(table), bool)
    mine[rows] = True
    for client in np.unique(table.client[rows]).tolist():
        own = chart.histories[client][mine[chart.histories[client]]]
        peaks = table.peak_memory_bytes[own]
        if len(own) < LEAST_ALONE or peaks[-1] < (1 + RUN_MATTERS) * peaks[0]:
            continue
        half, rise = len(own) // 2, trend(np.arange(len(own), dtype=float), peaks)
        still = peaks[-1] - peaks[half] > (peaks[half] - peaks[0]) / 2
        if rise.chance <= RATE / len(chart.clients) and still:
            yield _own_process(chart, client, own, peaks, rise.slope)


def _own_process(chart: Chart, client: int, rows: Ints, peaks: Floats, each: float) -> Finding:
    name = chart.clients[client]
    return write(
        RULE,
        Severity.WARNING,
        f"client {name}'s memory grew from {size(float(peaks[0]))} to {size(float(peaks[-1]))} over "
        f"{times(len(rows), 'participation')}, {size(each)} each",
        grade=Grade.ACCUSED,
        rounds=chart.participations.round[rows].tolist(),
        clients=[name],
        evidence={
            "bytes_a_participation": each,
            "bytes": float(peaks[-1] - peaks[0]),
            "first_bytes": float(peaks[0]),
            "last_bytes": float(peaks[-1]),
        },
        next=[f"look at what client {name} keeps from one participation to the next"],
    )


def _of_heap(chart: Chart, found: Kept) -> Finding:
    first, last, count = float(found.used[0]), float(found.used[-1]), len(found.rounds)
    return write(
        RULE,
        Severity.WARNING,
        f"after each round more memory was in use: from {size(first)} to {size(last)} between rounds "
        f"{found.rounds[0]} and {found.rounds[-1]}, {size(found.each)} a round and without an end; no single client "
        "stands out" + _left(chart, last, found.each, "round"),
        grade=Grade.ACCUSED,
        rounds=found.rounds.tolist(),
        evidence={"bytes_a_round": found.each, "first_bytes": first, "last_bytes": last, "samples": count},
        next=LOOK,
    )


def _of_run(chart: Chart, growth: Growth) -> Iterator[Finding]:
    numbers, _, peak = by_round(chart, growth)
    skip = int(WARM_UP * len(numbers))
    numbers, peak = numbers[skip:], peak[skip:]
    if len(numbers) < 2 * STRETCHES or peak[-1] - peak[0] < RUN_MATTERS * peak[0]:
        return
    marks = peak[np.linspace(0, len(peak) - 1, STRETCHES + 1).astype(int)]
    if np.any(np.diff(marks) < LEAST_STRETCH * peak[0]):
        return
    each = slope(numbers.astype(float), peak)
    yield write(
        RULE,
        Severity.WARNING,
        f"memory grew from {size(float(peak[0]))} to {size(float(peak[-1]))} over {times(len(numbers), 'round')}, "
        f"about {size(each)} a round and without an end; no single client stands out"
        + _left(chart, peak[-1], each, "round"),
        grade=Grade.ACCUSED,
        rounds=numbers.tolist(),
        evidence={"bytes_a_round": each, "first_bytes": float(peak[0]), "last_bytes": float(peak[-1])},
        next=LOOK,
    )


RULE = WrittenRule(
    code="FL801",
    name="memory growth",
    page=__doc__ or "",
    look=_look,
    explains=frozenset({"FL205", "FL802"}),
)
