"""Round time grows.

Sees: rounds that take longer and longer for each client that took part: a steady rise over the whole run and over
each of its halves. Apart from that, a step: from some round on, rounds take at least twice as long as before.

Matters: what grows a little every round ends the run or its budget later: a list that is never emptied, a log that is
read again each round, memory that fragments, a queue that backs up.

Evidence: seconds at the beginning and at the end, the slope, Kendall's tau and its chance; for a step the round and
both medians.

False alarms: the rise must be one that a series without a trend shows in at most one run in a thousand, hold in both
halves, and add half of the first quarter's time. A step may be another program on the same machine, so it is only told
of (info). The first round is not judged: libraries load in it.

Do: profile an early and a late round and compare; look at memory (FL801) and at what else runs on the machine.

Papers: Mann (1945) and Kendall (1948) for the test; Theil (1950) and Sen (1968) for the slope.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.robust import median, threshold
from fedvitals.diagnose.rule import CannotSee, WrittenRule
from fedvitals.diagnose.trends import Trend, change, trend
from fedvitals.diagnose.writing import seconds, share, write
from fedvitals.store.table import Floats, Ints
from fedvitals.vocabulary import Finding, Grade, Severity

LEAST_ROUNDS = 9  # besides the first: below that halves say nothing
RATE = 0.001
HALF_RATE = 0.05
LEAST_TAU = 0.5
GROWTH = 0.5  # of the first quarter's time
STEP = 2.0


def _look(chart: Chart) -> Iterator[Finding]:
    ended = [one for one in chart.rounds[1:] if one.end_ns is not None and one.end_ns > one.start_ns]
    if len(ended) < LEAST_ROUNDS:
        raise CannotSee(f"fewer than {LEAST_ROUNDS + 1} rounds have ended")
    number = np.array([one.number for one in ended], dtype=np.int64)
    length = np.array([((one.end_ns or 0) - one.start_ns) / 1e9 for one in ended])
    each = length / np.maximum([one.selected for one in ended], 1)
    rise = _rise(number, each)
    if rise is not None:
        yield _growing(number, length, each, rise)
        return
    yield from _step(number, length, each)


def _rise(number: Ints, each: Floats) -> Trend | None:
    whole, half = trend(number.astype(float), each), len(each) // 2
    if not (whole.chance <= RATE and whole.tau >= LEAST_TAU):
        return None
    if whole.slope * float(np.ptp(number)) < GROWTH * median(each[: max(len(each) // 4, 2)]):
        return None
    halves = (trend(number[part].astype(float), each[part]) for part in (slice(None, half), slice(half, None)))
    return whole if all(one.slope > 0 and one.chance <= HALF_RATE for one in halves) else None


def _growing(number: Ints, length: Floats, each: Floats, rise: Trend) -> Finding:
    quarter = max(len(length) // 4, 2)
    first, last = median(length[:quarter]), median(length[-quarter:])
    more = rise.slope * float(np.ptp(number)) / median(each[:quarter])
    return write(
        RULE,
        Severity.WARNING,
        f"rounds took {seconds(first)} at first and {seconds(last)} at last; for each client {share(more)} more over "
        f"{len(number)} rounds, rising all the time (tau {rise.tau:.2f})",
        grade=Grade.ACCUSED,
        rounds=number.tolist(),
        evidence={
            "first_s": first,
            "last_s": last,
            "growth": more,
            "slope_s": rise.slope,
            "tau": rise.tau,
            "chance": rise.chance,
        },
        next=["fedvitals show RUN", f"fedvitals show RUN --round {int(number[-1])}"],
    )


def _step(number: Ints, length: Floats, each: Floats) -> Iterator[Finding]:
    split = change(np.log(each))
    if split is None or split.after - split.before < np.log(STEP) or split.score < threshold(len(each), RATE):
        return
    before, after = each[: split.place], each[split.place :]
    if np.quantile(after, 0.1) <= np.quantile(before, 0.9):
        return
    yield write(
        RULE,
        Severity.INFO,
        f"rounds took {seconds(median(length[: split.place]))} until round {int(number[split.place])} and "
        f"{seconds(median(length[split.place :]))} from then on",
        grade=Grade.SUSPECT,
        rounds=number[split.place :].tolist(),
        evidence={
            "from_round": int(number[split.place]),
            "before_s": median(length[: split.place]),
            "after_s": median(length[split.place :]),
        },
        next=[f"fedvitals show RUN --round {int(number[split.place])}"],
    )


RULE = WrittenRule(code="FL205", name="round time grows", page=__doc__ or "", look=_look)
