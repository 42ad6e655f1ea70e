"""Store near its cap.

Sees: the size of the run on disk against `max_mb`: reached, above nine tenths, or on its way there by the rounds that
the job still has to do.

Matters: beyond the cap only scalars are kept: statistics of layers, sketches and models end there, and with them most
findings and every replay.

Evidence: the size, the cap, the bytes a round, and the round in which the cap is reached at that rate.

False alarms: the forecast takes the bytes a round so far to go on; it is only told of (info).

Do: raise `max_mb`, keep fewer models (`keep_models`, `keep_updates`), or make room (`fedvitals gc`).

Papers: none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.rule import CannotSee, WrittenRule
from fedvitals.diagnose.writing import share, size, write
from fedvitals.vocabulary import Finding, Grade, Severity, Status

NEAR = 0.9
MEGABYTE = 2**20
LEAST_ROUNDS = 5  # before a forecast
ROOM = "raise max_mb, keep fewer models (keep_models, keep_updates), or make room: fedvitals gc"
BEYOND = "the run has grown beyond"  # how the writer says so


def _look(chart: Chart) -> Iterator[Finding]:
    cap = _cap(chart.run.environment.get("settings"))
    if cap is None:
        raise CannotSee("the cap on the run's size is not known")
    full = chart.size_bytes > cap or any(BEYOND in one.message for one in chart.logs if one.logger == "fedvitals")
    if full or chart.size_bytes > NEAR * cap:
        yield write(
            RULE,
            Severity.WARNING,
            f"the run takes {size(chart.size_bytes)} of {size(cap)} ({share(chart.size_bytes / cap)})"
            + ("; details are no longer kept" if full else ""),
            evidence={"bytes": chart.size_bytes, "cap_bytes": cap, "full": full},
            next=[ROOM],
        )
        return
    yield from _forecast(chart, cap)


def _forecast(chart: Chart, cap: int) -> Iterator[Finding]:
    train = chart.run.config.get("train")
    total = train.get("rounds") if isinstance(train, Mapping) else None
    done = sum(one.end_ns is not None for one in chart.rounds)
    if type(total) is not int or done < LEAST_ROUNDS or chart.run.status is not Status.RUNNING:
        return
    each = chart.size_bytes / done
    if each * total > cap:
        yield write(
            RULE,
            Severity.INFO,
            f"at {size(each)} a round the run reaches its cap of {size(cap)} in round {int(cap / each)} of {total}",
            grade=Grade.SUSPECT,
            evidence={"bytes_a_round": each, "cap_bytes": cap, "round": int(cap / each)},
            next=[ROOM],
        )


def _cap(settings: Any) -> int | None:
    known = settings.get("max_mb") if isinstance(settings, Mapping) else None
    return known * MEGABYTE if type(known) is int and known > 0 else None


RULE = WrittenRule(code="FL904", name="store near its cap", page=__doc__ or "", look=_look)
