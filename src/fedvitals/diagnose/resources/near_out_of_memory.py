"""Near out of memory.

Sees: a process whose peak is above nine tenths of the machine's or the container's memory, an accelerator whose peak is
above nine tenths of its own, and failures that say that memory ran out.

Matters: the kernel ends the largest process without a word; the next larger client or batch does it.

Evidence: the peak, what there is, and the failures.

False alarms: nine tenths is a matter of taste, named so; other programs on the machine take their part too. On an
accelerator the peak may count what an allocator merely keeps.

Do: smaller batches or chunks of clients, fewer workers, accumulate gradients, checkpoint activations.

Papers: Chen et al., Training Deep Nets with Sublinear Memory Cost (2016).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.failures.kinds import about_memory
from fedvitals.diagnose.resources.process_memory import limit_bytes
from fedvitals.diagnose.rule import CannotSee, WrittenRule
from fedvitals.diagnose.writing import share, size, times, write
from fedvitals.vocabulary import Action, Failure, Finding, Severity

NEAR = 0.9
SMALLER = Action("smaller batches (train.batch_size), fewer workers (execute.workers), or train.accumulate", safe=False)


def _look(chart: Chart) -> Iterator[Finding]:
    failures = [one for one in chart.failures if about_memory(one)]
    limit = limit_bytes(chart)
    peaks = chart.participations.peak_memory_bytes
    peaks = peaks[np.isfinite(peaks)]
    peak = max(
        [one.peak_rss_bytes for one in chart.resources] + ([float(peaks.max())] if len(peaks) else []), default=0
    )
    devices = [one for one in chart.resources if one.device_total_bytes]
    if not failures and not devices and not (np.isfinite(limit) and peak > 0):
        raise CannotSee("neither the machine's memory nor what was used of it is known")
    if failures:
        yield _ran_out(failures)
    elif peak > NEAR * limit:
        yield _near("the process", float(peak), limit)
    full = [one for one in devices if (one.device_peak_bytes or 0) > NEAR * (one.device_total_bytes or 0)]
    if full:
        worst = max(full, key=lambda one: one.device_peak_bytes or 0)
        yield _near(str(worst.device), float(worst.device_peak_bytes or 0), float(worst.device_total_bytes or 0))


def _ran_out(failures: list[Failure]) -> Finding:
    first = failures[0]
    return write(
        RULE,
        Severity.CRITICAL,
        f"memory ran out {times(len(failures))}: {first.kind} in {first.stage}: {first.message[:300]}",
        rounds=[one.round for one in failures if one.round is not None],
        clients=[one.client for one in failures if one.client is not None],
        evidence={"count": len(failures), "kind": first.kind, "message": first.message},
        next=[SMALLER],
    )


def _near(what: str, peak: float, limit: float) -> Finding:
    return write(
        RULE,
        Severity.WARNING,
        f"{what} used {size(peak)} of {size(limit)} at its peak, {share(peak / limit)}",
        evidence={"peak_bytes": peak, "limit_bytes": limit, "of": what},
        next=["fedvitals show RUN", SMALLER],
    )


RULE = WrittenRule(
    code="FL802", name="near out of memory", page=__doc__ or "", look=_look, explains=frozenset({"FL101", "FL103"})
)
