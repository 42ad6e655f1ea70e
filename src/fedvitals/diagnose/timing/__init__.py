"""FL2: time."""

from __future__ import annotations

from fedvitals.diagnose.rule import Rule
from fedvitals.diagnose.timing import (
    aggregation_dominates,
    loader_bound,
    round_time_grows,
    straggler,
    waiting_dominates,
)

RULES: tuple[Rule, ...] = (
    straggler.RULE,
    waiting_dominates.RULE,
    aggregation_dominates.RULE,
    loader_bound.RULE,
    round_time_grows.RULE,
)
