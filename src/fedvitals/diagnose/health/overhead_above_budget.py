"""Overhead above budget.

Sees: the share of the run's time that recording took, by the recorder's own count, when it is above the budget.

Matters: watching must not cost what it saves.

Evidence: the share, the budget, the run's length, and what is left of the share once a start-up of 0.2 s is taken off.

False alarms: the start (loading, first tensors, opening files) is no steady state: of a run so short that 0.2 s alone
would break the budget nothing is said; a share between one and two budgets, which the machine's
noise can make, is only told of (info).

Do: keep less: `steps = "off"`, `sketches = false`, `keep_models = false`, or a longer `resources_every_s`.

Papers: none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.rule import CannotSee, WrittenRule
from fedvitals.diagnose.writing import seconds, write
from fedvitals.vocabulary import Finding, Severity

START_S = 0.2  # what beginning costs, whatever follows: measured at 0.03 to 0.11 s on two busy cores
CLEARLY = 2.0  # budgets
KEEP_LESS = "keep less: steps = 'off', sketches = false, keep_models = false"


def _look(chart: Chart) -> Iterator[Finding]:
    overhead, elapsed = _number(chart.run.health.get("overhead")), _number(chart.run.health.get("elapsed_s"))
    settings = chart.run.environment.get("settings")
    budget = _number(settings.get("budget")) if isinstance(settings, Mapping) else None
    if overhead is None or budget is None:
        raise CannotSee("the recorder tells of its overhead when the run ends")
    if overhead <= budget:
        return
    if elapsed is None and chart.run.environment.get("clock") != "virtual":
        elapsed = (chart.run.ended_ns or 0) / 1e9
    steady = overhead - START_S / elapsed if elapsed else 0.0
    alarming = steady > CLEARLY * budget
    if budget * (elapsed or 0.0) < START_S:
        raise CannotSee(f"the run of {seconds(elapsed or 0.0)} is too short: its start, no steady state, counts most")
    yield write(
        RULE,
        Severity.WARNING if alarming else Severity.INFO,
        f"recording took {100 * overhead:.1f}% of the time, the budget is {100 * budget:.1f}%"
        + ("" if alarming else "; some of that is the start, or the machine's noise"),
        evidence={"overhead": overhead, "budget": budget, "elapsed_s": elapsed, "steady": max(steady, 0.0)},
        next=[KEEP_LESS],
    )


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


RULE = WrittenRule(code="FL902", name="overhead above budget", page=__doc__ or "", look=_look)
