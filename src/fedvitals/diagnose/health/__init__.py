"""FL9: fedvitals' own health."""

from __future__ import annotations

from fedvitals.diagnose.health import (
    clock_skew,
    differences_submitted,
    overhead_above_budget,
    records_dropped,
    store_near_cap,
    used_twice,
)
from fedvitals.diagnose.rule import Rule

RULES: tuple[Rule, ...] = (
    records_dropped.RULE,
    overhead_above_budget.RULE,
    clock_skew.RULE,
    store_near_cap.RULE,
    differences_submitted.RULE,
    used_twice.RULE,
)
